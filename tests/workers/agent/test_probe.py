"""Hardware readings: right on this machine, absent where there is nothing, and never hanging."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from workers.agent import probe
from workers.agent.cards import Cards


def test_this_machine_is_read_with_sense(tmp_path: Path) -> None:
    found = probe.hardware(tmp_path, Cards())
    assert 1 <= found.cores <= (os.cpu_count() or 1)
    assert 0 < found.memory_available <= found.memory_total
    assert found.disk_free > 0


def test_threads_are_half_of_the_cores_unless_the_node_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "cores", lambda: 7)
    assert (probe.default_threads(0), probe.default_threads(5)) == (3, 5)
    monkeypatch.setattr(probe, "cores", lambda: 1)
    assert probe.default_threads(0) == 1


def test_a_container_bound_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "CGROUP", tmp_path)
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")
    (tmp_path / "memory.current").write_text("48576\n")
    assert probe.cores() == min(2, len(os.sched_getaffinity(0)))
    assert probe.memory() == (1048576, 1000000)


def test_meminfo_is_read_in_bytes_and_odd_lines_are_skipped() -> None:
    assert probe.parse_meminfo("MemTotal:  10 kB\nOdd\nHuge: 3\nBad: x kB\n") == {"MemTotal": 10240, "Huge": 3}


def test_memory_of_a_process_is_its_share_and_of_none_is_not_known() -> None:
    assert (probe.proportional_memory([os.getpid()]) or 0) > 1 << 20
    assert probe.proportional_memory([]) is None
    assert os.getpid() in probe.group_of(os.getsid(0))
