"""workers.hashing: begun once, looked at often."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from workers import hashing


def test_a_digest_is_right_and_computed_once(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(hashing.CHUNK * 2 + 7))
    first = hashing.look(path)
    assert first.result.result(timeout=60) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert first.progress == 1.0
    assert hashing.look(path) is first


def test_a_file_that_was_replaced_is_hashed_anew(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"one")
    first = hashing.look(path).result.result(timeout=60)
    path.write_bytes(b"other")
    assert hashing.look(path).result.result(timeout=60) != first


def test_an_empty_file_has_a_digest(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    found = hashing.look(path)
    assert found.result.result(timeout=60) == hashlib.sha256().hexdigest()
    assert found.progress == 1.0


def test_a_missing_file_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        hashing.look(tmp_path / "nothing")


def test_finished_digests_are_bounded(tmp_path: Path) -> None:
    for number in range(hashing.KEEP * 2):
        path = tmp_path / f"{number}"
        path.write_bytes(str(number).encode())
        hashing.look(path).result.result(timeout=60)
    assert len(hashing._running) <= hashing.KEEP + 1
