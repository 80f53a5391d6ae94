"""Damaged headers, indexes, manifests and answers are refused, quickly and in little memory, whatever is in them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[3]
READERS = (
    "gguf", "adapter", "mmproj", "shape", "safetensors", "index", "config", "peft", "manifest", "card", "answers",
)  # fmt: skip
COUNT = 100_000
"""Of each."""


def run(readers: str, count: int, seed: int) -> None:
    args = [sys.executable, "-m", "tests.catalog.domain.hostile", readers, str(count), str(seed)]
    done = subprocess.run(args, cwd=TOP, capture_output=True, text=True, timeout=2400)
    assert done.returncode == 0, done.stderr[-3000:]
    for reader, found in json.loads(done.stdout).items():
        figures = f"{found['refused']} refused, {found['memory'] >> 20} MiB, slowest {found['slowest']:.3f} s"
        print(f"\n{reader}: {found['cases']} cases, {figures}")  # noqa: T201
        assert found["cases"] == count
        assert found["refused"] < count, "damage that always matters tests little"
        assert found["memory"] < 64 << 20
        assert found["slowest"] < 1.0


def test_damaged_files_are_refused() -> None:
    run(",".join(READERS), 300, 1)


def test_the_most_that_is_let_in_is_read_in_little_memory() -> None:
    run("largest", 40, 1)


def test_names_that_promise_very_many_files_cost_little() -> None:
    run("many", 8, 1)


@pytest.mark.prove
@pytest.mark.timeout(2500)
@pytest.mark.parametrize("reader", READERS)
def test_prove_damaged_files_are_refused(reader: str) -> None:
    run(reader, COUNT, 2)
