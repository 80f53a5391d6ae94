"""Where the files that come with llmgw lie: in the project's folder, or in an installed wheel."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
"""The project's folder, or site-packages where llmgw was installed from a wheel."""


def shipped(name: str) -> Path:
    """The folder `templates` or `static`: in `llmgw_files` where a wheel was installed, else in the project's folder."""
    installed = TOP / "llmgw_files" / name
    return installed if installed.is_dir() else TOP / name
