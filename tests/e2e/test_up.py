"""`llmgw up` itself: start, second start, stop, start again, and being killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.processes import alive, fair, wait_for
from tests.stack import MODEL, SERVICES, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(300)]


def second(stack: Stack, **environ: str) -> subprocess.CompletedProcess[str]:
    """Another `llmgw up` beside the running one."""
    return subprocess.run(
        [sys.executable, "-m", "llmgw_site.up.main"],
        env={**stack.environ, **environ}, capture_output=True, text=True, timeout=fair(30),
    )  # fmt: skip


def test_from_the_first_start_to_ctrl_c_and_on_again_with_a_new_token_for_a_revoked_one(fresh_stack: Stack) -> None:
    stack = fresh_stack
    process = stack.spawn()
    wait_for(stack.env_file.exists, seconds=fair(60), what=f"up: {stack.tail()}")
    assert stack.answers(), "quickstart.env was there before a chat could be answered"

    # what is printed can be used as it stands
    printed = stack.log.read_text()
    first = dict(stack.quickstart)
    assert f"console    {stack.url}/" in printed
    assert first["LLMGW_ADMIN_PASSWORD"] in printed
    line = printed[printed.index("  curl ") :].split("\n\n")[0]
    pasted = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=fair(30))
    assert '"content"' in pasted.stdout, pasted
    assert stack.env_file.stat().st_mode & 0o777 == 0o600
    assert stack.data.stat().st_mode & 0o777 == 0o700
    assert open_to_others(stack.data) == []

    # no secret in a log, no request of our own refused
    for log in filter(Path.is_file, (stack.data / "logs").rglob("*")):
        text = log.read_text(errors="replace")
        assert first["LLMGW_API_KEY"] not in text, log
        assert first["LLMGW_ADMIN_TOKEN"] not in text, log
        assert first["LLMGW_ADMIN_PASSWORD"] not in text, log

    # a second one on the same data, and one on the same ports
    refused = second(stack)
    assert refused.returncode == 1
    assert f"process {process.pid}, since 20" in refused.stderr
    refused = second(stack, LLMGW_DATA=str(stack.data.parent / "other"))
    assert refused.returncode == 1
    assert f"port {stack.port} " in refused.stderr
    assert "LLMGW_PORT=" in refused.stderr
    assert stack.answers(), "the refused ones disturbed the running one"

    # a revoked token, and Ctrl-C
    token = next(row for row in stack.api().all("tokens") if first["LLMGW_ADMIN_TOKEN"].startswith(row["prefix"]))
    stack.api().delete(f"tokens/{token['id']}")
    everybody = [process.pid, *stack.pids(), *stack.engines()]
    assert stack.stop(signal.SIGINT) == 0, stack.tail()
    assert [pid for pid in everybody if alive(pid)] == []
    assert not stack.env_file.exists()

    # on again: the same node, the same model without another job, the same key, and another token for the revoked one
    identity = (stack.data / "node" / "identity.json").read_bytes()
    stack.start()
    after = dict(stack.quickstart)
    assert {name for name in after if after[name] != first[name]} == {"LLMGW_ADMIN_TOKEN"}
    assert (stack.data / "node" / "identity.json").read_bytes() == identity
    assert len(stack.api().all("jobs")) == 1
    assert stack.answers()


def open_to_others(folder: Path) -> list[str]:
    """Entries below it that others than the owner may read; llmgw, which runs, takes some away while we look."""
    found = []
    for place, folders, names in os.walk(folder):
        for name in (*folders, *names):
            with suppress(FileNotFoundError):
                if os.lstat(path := f"{place}/{name}").st_mode & 0o077:
                    found.append(path)
    return found


MOMENTS: dict[str, Callable[[Stack], object]] = {
    "services": lambda stack: stack.pid("web"),
    "engine": lambda stack: stack.engines(),
    "ready": lambda stack: stack.env_file.exists(),
}
"""What is there at three moments of a start."""


def written(path: Path) -> int | None:
    """When a file was written, in ns; None where there is none."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


@pytest.mark.parametrize(
    "killed_at", [("engine",), pytest.param(tuple(MOMENTS), marks=pytest.mark.prove)], ids="-".join
)
def test_f11_a_killed_supervisor_is_followed_by_one_that_goes_on_without_any_hand(
    fresh_stack: Stack, killed_at: tuple[str, ...]
) -> None:
    stack = fresh_stack
    process = stack.spawn()
    for moment in killed_at:
        wait_for(lambda there=MOMENTS[moment]: there(stack), seconds=fair(60), what=f"up: {stack.tail()}")
        process.kill()
        process.wait()
        before = written(stack.env_file)
        process = stack.spawn()
    wait_for(
        lambda: written(stack.env_file) not in (None, before), seconds=fair(60), what=f"its own word: {stack.tail()}"
    )
    assert stack.answers()
    wait_for(lambda: len(stack.engines()) == 1, what="no engine of the killed one beside its own")
    assert len(stack.api().all("models")) == 1


@pytest.mark.prove
def test_engines_are_adopted_and_outlive_a_killed_supervisor_and_a_second_ctrl_c_kills_all(fresh_stack: Stack) -> None:
    stack = fresh_stack
    stack.start("--keep-engines")
    engines = stack.engines()
    assert stack.stop() == 0
    assert stack.pids() == []
    assert stack.engines() == engines != []
    stack.start()
    assert stack.engines() == engines, "the next one adopts them"

    assert stack.process is not None
    stack.process.kill()
    stack.process.wait()
    wait_for(lambda: stack.pids() == [], seconds=fair(10), what="services to end")
    assert stack.engines() == engines
    before = written(stack.env_file)
    stack.spawn()
    wait_for(
        lambda: written(stack.env_file) not in (None, before), seconds=fair(60), what=f"its own word: {stack.tail()}"
    )
    assert stack.engines() == engines
    assert stack.answers()

    frozen = stack.pid("web")
    assert frozen is not None
    os.kill(frozen, signal.SIGSTOP)  # will not end by itself
    stack.process.send_signal(signal.SIGINT)
    wait_for(lambda: "stopping" in stack.tail(), seconds=fair(10), what="the first to be heard")
    began = time.monotonic()
    stack.process.send_signal(signal.SIGINT)
    stack.process.wait(fair(10))
    assert time.monotonic() - began < fair(3)
    assert stack.pids() == []
    assert stack.engines() == []


def test_a_service_that_cannot_start_is_shown_with_the_end_of_its_log(fresh_stack: Stack) -> None:
    stack = fresh_stack
    stack.data.mkdir(mode=0o700)
    (stack.data / "llmgw.sqlite3").write_text("no database at all")
    process = stack.spawn()
    assert process.wait(fair(60)) == 1
    assert "the bootstrap failed. The end of" in stack.tail()
    assert "file is not a database" in stack.tail()
    assert stack.pids() == []


@pytest.mark.prove
def test_weights_that_are_not_there_leave_a_console_to_mend_it(fresh_stack: Stack) -> None:
    stack = fresh_stack
    stack.environ["LLMGW_QUICKSTART_WEIGHTS"] = str(stack.data / "none.gguf")
    stack.spawn()
    wait_for(lambda: "llmgw runs, but its model does not" in stack.tail(), seconds=fair(60), what=f"up: {stack.tail()}")
    assert not stack.env_file.exists()
    assert "LLMGW_QUICKSTART=0" in stack.tail()
    assert stack.stop() == 0


@pytest.mark.prove
def test_without_a_quickstart_model_the_rest_is_ready(fresh_stack: Stack) -> None:
    stack = fresh_stack
    stack.environ["LLMGW_QUICKSTART"] = "0"
    stack.start()
    assert stack.quickstart["LLMGW_MODEL"] == ""
    assert stack.api().all("models") == []
    assert stack.chat(model=MODEL).status_code == 404


@pytest.mark.prove
def test_a_controller_without_edge_and_engines_is_ready_and_without_its_controller_it_starts_again(
    fresh_stack: Stack,
) -> None:
    """Roles of the node's settings, first; then what the cluster setup said last."""
    stack = fresh_stack
    stack.environ["LLMGW_ROLES"] = "controller"
    stack.start()
    assert stack.quickstart["LLMGW_MODEL"] == ""
    assert stack.api().all("models") == []
    (node,) = wait_for(
        lambda: [node for node in stack.api().all("nodes") if node["modules"]],
        seconds=fair(10), what="the first heartbeat", every=0.1,
    )  # fmt: skip
    assert [module["name"] for module in node["modules"]] == ["controller"]
    wait_for((stack.data / "cluster" / "wanted.json").exists, seconds=fair(10), what="its answer")
    assert stack.stop() == 0
    wanted = stack.data / "cluster" / "wanted.json"
    wanted.write_text(json.dumps({**json.loads(wanted.read_text()), "roles": ["router"]}))
    stack.log.unlink()
    stack.spawn()
    said = "The controller module is switched off on this node"
    wait_for(lambda: said in stack.tail(), seconds=fair(60), what=f"up: {stack.tail()}")
    assert {name for name in SERVICES if stack.pid(name)} == {"valkey", "gateway", "agent"}
    assert stack.stop() == 0
    assert stack.pids() == []


def test_a_port_that_is_taken_says_how_to_choose_another(fresh_stack: Stack) -> None:
    with socket.create_server(("127.0.0.1", fresh_stack.metrics_port)):
        process = fresh_stack.spawn()
        assert process.wait(fair(60)) == 1
    assert f"port {fresh_stack.metrics_port} of 127.0.0.1 (metrics listener) is taken" in fresh_stack.tail()
    assert fresh_stack.pids() == []
