"""Kind to adapter. Not in the package's `__init__`, which the launcher imports inside the engine's process."""

from __future__ import annotations

from collections.abc import Mapping

from workers.agent.engines.base import Engine
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.engines.vllm import Vllm

ENGINES: Mapping[str, Engine] = {"llama.cpp": LlamaCpp(), "vllm": Vllm()}
