"""Gives the processes of a test a card that there is not: its own NVML in the place of the driver's."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
UUID = "-".join(("GPU", os.environ.get("LLMGW_NODE_NAME") or "1"))
"""Of each node its own."""

if os.environ.get("LLMGW_DATA"):
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    real = ctypes.CDLL

    def with_card(name: Any, *args: Any, **options: Any) -> Any:
        return None if name == LIBRARY else real(name, *args, **options)

    try:
        from tests.fakes.nvml import Card, Nvml
    except ImportError:
        pass
    else:
        ctypes.CDLL = with_card  # type: ignore[misc,assignment]
        sys.modules["pynvml"] = Nvml(Card(uuid=UUID, name="NVIDIA L4", total=24 << 30))  # type: ignore[assignment]
