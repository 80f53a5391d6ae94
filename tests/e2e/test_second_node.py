"""A second machine joins a running `llmgw up` with exactly the command that `llmgw node token` prints, and serves."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from llmgw_site.lib import files
from tests import processes, tiny
from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]


@pytest.fixture
def second() -> Iterator[Stack]:
    """Folder and ports of another machine, where nothing of llmgw is yet. It has no stores and no quickstart model."""
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))
    stack = Stack(folder / "d", LLMGW_NODE_NAME="second")
    for name in ("LLMGW_QUICKSTART_MODEL", "LLMGW_QUICKSTART_WEIGHTS"):
        stack.environ.pop(name)
    try:
        yield stack
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def llmgw(stack: Stack, *args: str) -> str:
    """What a command of the administrator prints."""
    environ = {**stack.environ, "PATH": path()}
    done = subprocess.run(["llmgw", *args], env=environ, capture_output=True, text=True, timeout=fair(60))
    assert done.returncode == 0, done.stderr
    return done.stdout


def path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run_printed(command: str, stack: Stack) -> None:
    """Paste the command into a shell of the other machine."""
    with stack.log.open("ab") as log:
        stack.process = subprocess.Popen(
            ["bash", "-c", command], env={**stack.environ, "PATH": path()}, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip


def chat(stack: Stack, key: str, *, timeout: float = 30) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}], "temperature": 0}
    return httpx.post(
        f"{stack.url}/v1/chat/completions",
        headers={"authorization": f"Bearer {key}"},
        json=body,
        timeout=timeout,
        trust_env=False,
        verify=False,
    )


def serves(stack: Stack, key: str, **options: float) -> bool:
    try:
        answer = chat(stack, key, **options)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and tiny.TEXT.split()[0] in answer.text


def _ready(stack: Stack) -> bool:
    """Whether the node has an engine that serves."""
    found = files.read_json(stack.data / "cluster" / "engines.json") or {}
    return any(engine["state"] == "ready" for engine in found.get("engines", ()))


@pytest.fixture
def first(stack: Stack) -> Iterator[Stack]:
    """The stack that was there before. Afterwards it is alone again, with its one engine."""
    yield stack
    api = stack.api()
    for node in api.all("nodes"):
        if node["name"] == "second":
            api.delete(f"nodes/{node['id']}")
    row = api.find("models", MODEL, noun="model")
    api.patch(f"models/{row['id']}", {"replicas": 0})
    wait_for(lambda: not api.all("replicas", model=MODEL), seconds=fair(30), what="all replicas to go", every=0.2)
    api.patch(f"models/{row['id']}", {"replicas": 1})
    wait_for(stack.answers, seconds=fair(30), what="an answer", every=0.2)


def test_a_second_node_joins_with_the_printed_command_and_serves(first: Stack, second: Stack) -> None:
    command = llmgw(first, "node", "token").strip()
    assert shlex.split(command)[:3] == ["llmgw", "node", "join"]
    assert "\n" not in command

    run_printed(command, second)
    online = wait_for(
        lambda: {row["name"]: row for row in first.api().all("nodes") if row["state"] == "online"}.get("second"),
        seconds=fair(40), what=f"the second node: {second.tail()}", every=0.2,
    )  # fmt: skip
    assert online
    modules = {item["name"]: item for item in online["modules"]}
    assert modules["inference"]["state"] == "running"
    assert (modules["controller"]["state"], modules["controller"]["code"]) == ("unavailable", "store_not_shared")
    assert "second" in llmgw(first, "node", "list")

    key = first.quickstart["LLMGW_API_KEY"]
    row = first.api().find("models", MODEL, noun="model")
    first.api().patch(f"models/{row['id']}", {"replicas": 2})
    wait_for(lambda: _ready(second), seconds=fair(40), what="an engine on the second node", every=0.2)
    wait_for(
        lambda: serves(second, key), seconds=fair(40), what=f"an answer of the second node: {second.tail()}", every=0.2
    )
    # it answers itself, whatever becomes of the first
    gateway = wait_for(lambda: first.pid("gateway"), what="the first gateway")
    assert gateway
    os.kill(gateway, signal.SIGSTOP)
    try:  # its gateway sees its engine a moment after its agent; until then it asks the first, which is silent now
        wait_for(
            lambda: serves(second, key, timeout=3), seconds=fair(40), what="the second node's own answer", every=0.2
        )
    finally:
        with contextlib.suppress(ProcessLookupError):  # the supervisor starts one that hangs anew
            os.kill(gateway, signal.SIGCONT)
    # and serves for the first when that has no engine
    for pid in first.engines(MODEL):
        os.kill(pid, signal.SIGKILL)
    wait_for(first.answers, seconds=fair(40), what="an answer for the first", every=0.2)

    refused = subprocess.run(
        ["bash", "-c", f"{command} --name third --no-start"], env={**second.environ, "LLMGW_DATA": f"{second.data}-third", "PATH": path()},
        capture_output=True, text=True, timeout=fair(60),
    )  # fmt: skip
    shutil.rmtree(f"{second.data}-third", ignore_errors=True)
    assert (refused.returncode, "used up" in refused.stderr) == (1, True), refused.stderr

    assert second.stop() == 0, second.tail()
    assert second.pids() == []
    assert second.engines() == []
    wait_for(first.answers, seconds=fair(40), what="the first to serve on", every=0.3)
    assert processes.with_environ("LLMGW_AGENT_DATA", str(second.data)) == []
