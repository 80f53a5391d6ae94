"""Processes of a data folder are found by their environment and ended through pidfds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_site.up import processes
from tests.processes import running

SLEEP = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(60)"]
DEAF = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(60)",
]


def on(child: subprocess.Popen[bytes]) -> int:
    assert child.stdout is not None
    assert child.stdout.readline() == b"on\n"
    return child.pid


def test_engines_and_services_of_one_folder_are_told_apart(tmp_path: Path) -> None:
    data = str(tmp_path)
    service = {**os.environ, "LLMGW_UP": data}
    engine = {**service, "LLMGW_REPLICA_ID": "rep_1", "LLMGW_AGENT_DATA": data}
    other = {**service, "LLMGW_REPLICA_ID": "rep_2", "LLMGW_AGENT_DATA": data + "x", "LLMGW_UP": data + "x"}
    with (
        running(SLEEP, env=service, stdout=subprocess.PIPE) as one,
        running(SLEEP, env=engine, stdout=subprocess.PIPE) as two,
        running(SLEEP, env=other, stdout=subprocess.PIPE) as three,
    ):
        pids = [on(one), on(two), on(three)]
        assert processes.services_of(tmp_path) == [pids[0]]
        assert processes.engines_of(tmp_path) == [pids[1]]


def test_an_engine_in_the_midst_of_its_exec_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "LLMGW_REPLICA_ID": "rep_1", "LLMGW_AGENT_DATA": str(tmp_path)}
    with running(SLEEP, env=env, stdout=subprocess.PIPE, start_new_session=True) as engine:
        pid, read, looks = str(on(engine)), Path.read_bytes, []

        def midst_of_exec(path: Path) -> bytes:
            """Three looks at a process that loads its program, as the kernel answers them."""
            if path.parent.name == pid:
                looks.append(path.name)
            return b"" if path.parent.name == pid and looks.count("environ") <= 3 else read(path)

        monkeypatch.setattr(Path, "read_bytes", midst_of_exec)
        assert processes.engines_of(tmp_path) == [engine.pid]


def test_those_that_do_not_listen_are_killed() -> None:
    with running(DEAF, stdout=subprocess.PIPE) as deaf, running(SLEEP, stdout=subprocess.PIPE) as loyal:
        assert processes.end([on(loyal)], patience=60) == [loyal.pid]
        assert loyal.wait(60) == -15
        assert processes.end([on(deaf), loyal.pid], patience=0.3) == [deaf.pid]
        assert deaf.wait(60) == -9


def test_a_process_that_is_gone_already_is_no_problem() -> None:
    with running([sys.executable, "-c", ""]) as child:
        child.wait(60)
        assert processes.end([child.pid], patience=0.1) == []
