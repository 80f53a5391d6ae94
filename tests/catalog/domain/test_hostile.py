"""Damaged headers, indexes and manifests are refused, quickly and in little memory, whatever is in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
READERS = ("gguf", "safetensors", "index", "config", "manifest")


def run(reader: str, count: int, seed: int) -> None:
    args = [sys.executable, "-m", "tests.catalog.domain.hostile", reader, str(count), str(seed)]
    done = subprocess.run(args, cwd=TOP, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["memory"] < 64 << 20
    assert found["slowest"] < 1.0


@pytest.mark.parametrize("reader", READERS)
def test_damaged_files_are_refused(reader: str) -> None:
    run(reader, 500, 1)


@pytest.mark.prove
@pytest.mark.timeout(1600)
@pytest.mark.parametrize("reader", READERS)
def test_prove_damaged_files_are_refused(reader: str) -> None:
    run(reader, 100_000, 2)
