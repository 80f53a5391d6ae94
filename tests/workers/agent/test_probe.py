"""Hardware readings: right on this machine, absent where there is nothing, and never hanging."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.processes import wait_for
from workers.agent import probe
from workers.agent.cards import Cards
from workers.agent.readings import EngineUse


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


STAT = "{pid} (a) b( c) S 1 1 1 0 -1 4194560 1 2 3 4 {user} {system} 9 9 20 0 8 0 {started} 5 6 7"


def test_the_time_of_a_process_is_read_whatever_its_name_is() -> None:
    tick = os.sysconf("SC_CLK_TCK")
    assert probe.parse_stat(STAT.format(pid=7, user=3 * tick, system=tick, started=4711)) == ("4711", 4.0)
    for text in ("", "7 (a", "7 (a) S 1", "7 (a) " + "x " * 30):
        with pytest.raises((ValueError, IndexError)):
            probe.parse_stat(text)


@pytest.mark.parametrize(
    ("before", "now", "cores"),
    [
        ({(1, "a"): 10.0}, {(1, "a"): 15.0}, 1.0),
        ({(1, "a"): 10.0}, {(1, "a"): 10.0}, 0.0),
        ({(1, "a"): 10.0, (2, "b"): 1.0}, {(1, "a"): 15.0, (2, "b"): 6.0}, 2.0),  # an engine with its workers
        ({(1, "a"): 10.0}, {(1, "a"): 10.0, (2, "b"): 5.0}, 1.0),  # a worker that is new began in between
        ({(1, "a"): 10.0, (2, "b"): 90.0}, {(1, "a"): 15.0}, 1.0),  # one that ended takes nothing back
        ({(1, "a"): 10.0}, {(1, "z"): 15.0}, None),  # its pid is another process by now
        ({}, {(1, "a"): 15.0}, None),  # seen once
        ({(1, "a"): 10.0}, {}, None),
    ],
)
def test_cores_in_use_are_what_was_spent_between_two_looks(
    before: probe.CpuTimes, now: probe.CpuTimes, cores: float | None
) -> None:
    assert probe.cores_used(before, now, 5.0) == cores
    assert probe.cores_used(before, now, 0.0) is None


def test_a_reading_that_takes_long_makes_no_cores_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that the second look counts was spent since the first, not since the second was due."""
    clock, spent = [100.0], [0.0]

    def slowly(pids: Any) -> probe.CpuTimes:
        clock[0] += 2.0  # on one core
        spent[0] += 2.0
        return {(1, "a"): spent[0]}

    monkeypatch.setattr(probe, "cpu_times", slowly)
    use = EngineUse(lambda: clock[0])
    use.read({1})
    clock[0] += 1.0
    spent[0] += 1.0
    assert use.read({1})[1][1] <= 1.0


def sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def test_a_process_that_works_is_seen_to_and_one_that_waits_is_not() -> None:
    command = [
        sys.executable,
        "-c",
        "import sys\nprint(flush=True)\nif sys.argv[1] == 'work':\n while True: pass\nelse:\n input()",
    ]
    engines = [
        subprocess.Popen([*command, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        for how in ("work", "wait")
    ]
    try:
        for engine in engines:
            assert engine.stdout is not None
            engine.stdout.readline()
        busy, idle = (engine.pid for engine in engines)
        wait_for(lambda: sleeps(idle), what="the other one to wait")
        use = EngineUse()
        memory, cpu = use.read({busy, idle})
        assert (cpu, set(memory)) == ({}, {busy, idle})

        def works() -> bool:
            return probe.cores_used(use._times[busy], probe.cpu_times([busy]), 1.0) not in (None, 0.0)

        wait_for(works, what="the busy one to have had a core")
        _, cpu = use.read({busy, idle})
        assert cpu[busy] > 0.0 == cpu[idle]
        assert use.read({idle})[1].keys() == {idle}
    finally:
        for engine in engines:
            engine.kill()
            engine.communicate()
