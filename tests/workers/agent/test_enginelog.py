"""The engine's log is bounded, and its tail is that of the latest start only."""

from __future__ import annotations

import os
from pathlib import Path

from workers.agent import enginelog


def test_a_log_that_nears_its_bound_keeps_its_last_lines(tmp_path: Path) -> None:
    path = tmp_path / "e.log"
    handle = enginelog.open_for(path, limit=10_000, title="generation 1")
    for number in range(90):
        os.write(handle, f"{number:099d}\n".encode())
    assert enginelog.trim(path, limit=10_000)
    os.write(handle, b"and on\n")  # the engine's own descriptor goes on at the new end
    os.close(handle)
    lines = path.read_text().splitlines()
    assert path.stat().st_size < 3000
    assert lines[-2:] == [f"{89:099d}", "and on"]
    assert all(len(line) in (99, 6) for line in lines)  # no torn first line


def test_a_short_log_and_a_missing_one_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "e.log"
    assert not enginelog.trim(path, limit=1000)
    path.write_text("x" * 700)
    assert not enginelog.trim(path, limit=1000)


def test_the_tail_is_of_the_latest_start_bounded_and_printable(tmp_path: Path) -> None:
    path = tmp_path / "e.log"
    for number in range(3):
        handle = enginelog.open_for(path, limit=100_000, title="generation 1")
        os.write(handle, f"start {number}\n".encode() + b"\x1b[31mred\x00\n")
        os.close(handle)
    assert enginelog.tail(path) == "start 2\n?[31mred?"
    with path.open("ab") as file:
        file.write(b"y" * 50_000)
    assert len(enginelog.tail(path)) <= enginelog.TAIL_BYTES
    assert enginelog.tail(tmp_path / "none.log") == ""


def test_a_log_is_private_and_no_link_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "e.log"
    os.close(enginelog.open_for(path, limit=1000, title="t"))
    assert path.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link.log"
    link.symlink_to(path)
    try:
        enginelog.open_for(link, limit=1000, title="t")
    except OSError:
        return
    raise AssertionError("a link was followed")
