"""Engine processes: detached, clean, found again, ended with all of their group."""

from __future__ import annotations

import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import alive, wait_for
from tests.workers.agent.node import stop_engines
from workers.agent import enginelog, process

SLEEP = "import signal; signal.pause()"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(process, "EXEC", 60)  # a busy machine may take long to load a program
    yield tmp_path
    stop_engines(tmp_path, grace=0.2)


def spawn(data: Path, code: str, *, replica: str = "rep_1", limit: int = 0, **env: str) -> process.Child:
    log = enginelog.open_for(data / f"{replica}.log", limit=limit or 1 << 20, title="t")
    try:
        return process.spawn(
            (sys.executable, "-c", code), env=env, replica_id=replica, data=data, cwd=data, log=log, file_limit=limit
        )
    finally:
        os.close(log)


def ended(child: process.Child, seconds: float = 60) -> bool:
    return bool(select.select([child.pidfd], [], [], seconds)[0])


def test_a_child_leads_its_own_session_with_a_clean_environment(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMGW_SECRET_KEY", "must stay here")
    monkeypatch.setenv("LLAMA_ARG_TOOLS", "all")
    child = spawn(data, f"print('up', flush=True); {SLEEP}", EXTRA="1")
    assert os.getsid(child.pid) == child.pid
    names = {item.partition(b"=")[0].decode() for item in process.environ_of(child.pid) if item}
    assert {"EXTRA", process.REPLICA, process.DATA} <= names
    assert not {"LLMGW_SECRET_KEY", "LLAMA_ARG_TOOLS"} & names
    assert Path(f"/proc/{child.pid}/cwd").resolve() == data
    wait_for(lambda: "up" in (data / "rep_1.log").read_text())  # Python has closed what it opened while it started
    handles = {str(entry.readlink()) for entry in Path(f"/proc/{child.pid}/fd").iterdir()}
    assert handles == {"/dev/null", str(data / "rep_1.log")}


def test_a_child_is_found_by_its_marks_and_only_in_its_own_data_folder(data: Path, tmp_path: Path) -> None:
    child = spawn(data, SLEEP)
    assert process.find(data) == [process.Found(pid=child.pid, start_time=child.start_time, replica_id="rep_1")]
    assert process.find(tmp_path / "other") == []


def test_a_process_in_the_midst_of_its_exec_is_looked_at_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = spawn(data, SLEEP)
    process.environ_of(child.pid)
    read, looks = Path.read_bytes, []

    def midst_of_exec(path: Path) -> bytes:
        """Three looks at a process that loads its program, as the kernel answers them."""
        looks.append(path.name)
        return b"" if path.name in ("environ", "cmdline") and looks.count("environ") <= 3 else read(path)

    monkeypatch.setattr(Path, "read_bytes", midst_of_exec)
    assert process.marked(child.pid, data) is True
    assert looks == ["environ", "cmdline"] * 3 + ["environ"]
    looks.clear()
    assert process.replica_of(child.pid) == "rep_1"


def test_neither_a_corpse_nor_a_process_without_environment_is_waited_for(data: Path) -> None:
    child = spawn(data, "pass")
    assert ended(child)
    assert process.marked(child.pid, data) is None
    child.reap()
    assert process.marked(child.pid, data) is None
    bare = subprocess.Popen([sys.executable, "-c", SLEEP], env={})
    try:
        assert process.marked(bare.pid, data) is False
        assert process.replica_of(bare.pid) == ""
    finally:
        bare.kill()
        bare.wait()


@pytest.mark.parametrize(("state", "flags"), [("R", 0x40040C), ("D", 0x40040C), ("Z", 0x40000C)])
def test_what_is_ending_is_not_waited_for_as_if_it_were_just_beginning(
    data: Path, monkeypatch: pytest.MonkeyPatch, state: str, flags: int
) -> None:
    monkeypatch.setattr(process, "EXEC", 2)
    child = spawn(data, SLEEP)
    process.environ_of(child.pid)
    stat, looks = Path(f"/proc/{child.pid}/stat").read_text(), []
    name, _, rest = stat.rpartition(") ")
    fields = rest.split()
    fields[0], fields[6] = state, str(flags)

    def no_memory(path: Path) -> bytes:
        """What older kernels answer of a process that gives back its cards, and has no memory any more."""
        looks.append(path.name)
        return b""

    monkeypatch.setattr(Path, "read_bytes", no_memory)
    monkeypatch.setattr(Path, "read_text", lambda path: f"{name}) {' '.join(fields)}")
    found = process.marked(child.pid, data), process.replica_of(child.pid)
    monkeypatch.undo()
    assert (found, looks) == ((None, ""), ["environ", "cmdline"] * 2)


def test_the_end_is_seen_through_the_pidfd_with_its_status(data: Path) -> None:
    child = spawn(data, SLEEP)
    child.send(signal.SIGKILL)
    assert ended(child)
    assert child.reap() == -signal.SIGKILL


def test_a_child_that_dies_at_once_is_no_error(data: Path) -> None:
    child = spawn(data, "raise SystemExit(3)")
    assert ended(child)
    assert child.reap() == 3


def test_the_whole_group_ends_with_its_leader(data: Path) -> None:
    code = "import subprocess, sys, signal; p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.signal(15, signal.SIG_IGN); signal.pause()']); print('worker', p.pid, flush=True); signal.pause()"
    child = spawn(data, code)
    text = wait_for(lambda: (t := (data / "rep_1.log").read_text()).endswith("\n") and "worker" in t and t)
    worker = int(str(text).split()[-1])
    child.send(signal.SIGTERM)
    assert ended(child)
    child.reap()
    wait_for(lambda: not alive(worker), what="the worker to end with its leader")


def test_an_adopted_child_must_be_the_same_process(data: Path) -> None:
    child = spawn(data, SLEEP)
    again = process.Child(child.pid, child.start_time)
    again.forget()
    with pytest.raises(ProcessLookupError):
        process.Child(child.pid, child.start_time + 1)
    child.send(signal.SIGKILL)
    assert ended(child)
    with pytest.raises(ProcessLookupError):
        process.Child(child.pid, child.start_time)
    child.reap()


def test_the_log_is_bounded_by_the_kernel_while_nobody_trims_and_the_engine_lives_on(data: Path) -> None:
    code = (
        "import os, resource, signal, time\n"
        "while resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY: time.sleep(0.01)\n"
        "for n in range(3000):\n"
        "    try: os.write(1, b'x' * 99 + b'\\n')\n"
        "    except OSError: pass\n"
        "open('done', 'w').close(); signal.pause()"
    )
    child = spawn(data, code, limit=50_000)
    wait_for(lambda: (data / "done").exists(), what="the engine to have written all")
    assert alive(child.pid)
    assert (data / "rep_1.log").stat().st_size <= 50_000


def test_stop_engines_ends_even_what_ignores_sigterm(data: Path) -> None:
    deaf = spawn(data, "import signal; signal.signal(15, signal.SIG_IGN); open('up', 'w').close(); signal.pause()")
    polite = spawn(data, SLEEP, replica="rep_2")
    wait_for(lambda: (data / "up").exists())
    assert set(stop_engines(data, grace=0.3)) == {deaf.pid, polite.pid}
    for child in (deaf, polite):
        assert ended(child)
        child.reap()
    assert process.find(data) == []


def test_a_child_that_cannot_be_watched_is_not_left_running(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(pid: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", none_left)
        with pytest.raises(OSError, match="Too many"):
            spawn(data, SLEEP)
    assert process.find(data) == []


def test_an_ended_engine_whose_pid_is_somebody_elses_now_takes_nobody_along(data: Path) -> None:
    engine, other = spawn(data, SLEEP, replica="rep_1"), spawn(data, SLEEP, replica="rep_2")
    adopted = process.Child(engine.pid, engine.start_time)
    adopted.pid, adopted.start_time = other.pid, other.start_time - 1  # as if the kernel had given the number away
    adopted.reap()
    assert not ended(other, 0.2)
