"""llmgw_site.lib.files: whole or absent."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from llmgw_site.lib import files


def test_a_file_is_replaced_whole_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "it.json"
    files.write_json(path, {"a": 1})
    files.write_json(path, {"a": 2})
    assert files.read_json(path) == {"a": 2}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["it.json"]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.json"
    files.write_json(path, {"a": 1})

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_json(path, {"a": 2})
    monkeypatch.undo()
    assert files.read_json(path) == {"a": 1}
    assert [one.name for one in tmp_path.iterdir()] == ["it.json"]


def test_the_mark_is_of_what_was_written_not_of_what_somebody_put_there_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "it.json"
    assert files.mark(path) is None
    assert files.write_json(path, {"a": 1}) == files.mark(path)
    monkeypatch.setattr(files, "sync_folder", lambda folder: path.write_bytes(b"garbage"))
    assert files.write_json(path, {"a": 2}) != files.mark(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"a": 1} trailing'])
def test_what_is_no_json_reads_as_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "it.json"
    path.write_bytes(content)
    assert files.read_json(path) is None
    assert files.read_json(tmp_path / "none") is None


def test_a_private_folder_is_closed_again_if_it_was_open(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o755)
    files.private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_of_many_that_write_at_once_all_have_the_same(tmp_path: Path) -> None:
    path, gate, got = tmp_path / "secret", threading.Barrier(8), set[bytes]()

    def write(number: int) -> None:
        gate.wait()
        got.add(files.write_once(path, b"%d" % number))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {path.read_bytes()}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["secret"]
