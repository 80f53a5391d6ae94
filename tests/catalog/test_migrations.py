"""The catalogue's migrations go both ways, and nothing is missing from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def manage(data: Path, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LLMGW_DATA", "DATABASE_URL"))}
    env = {**kept, "LLMGW_DATA": str(data), "DJANGO_SETTINGS_MODULE": "llmgw_site.settings"}
    return subprocess.run(
        [sys.executable, "manage.py", *words], cwd=TOP, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_migrations_go_forward_back_and_forward_again(tmp_path: Path) -> None:
    for words in (
        ("migrate",),
        ("migrate", "catalog", "zero"),
        ("migrate",),
        ("makemigrations", "--check", "--dry-run"),
    ):
        done = manage(tmp_path / "data", *words)
        assert done.returncode == 0, f"{words}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
