"""kill -9 of each part: what must go on goes on, and what died is back in time."""

from __future__ import annotations

import json
import os
import signal

import httpx
import pytest

from tests import tiny
from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]


def test_f45_a_killed_engine_is_replaced_and_answers_within_15_seconds(stack: Stack) -> None:
    (engine,) = stack.engines(MODEL)
    os.kill(engine, signal.SIGKILL)
    wait_for(stack.answers, seconds=fair(15), what=f"an answer: {stack.tail()}", every=0.1)
    assert engine not in stack.engines()


def test_f59_a_model_that_is_deleted_while_loaded_frees_its_memory_and_leaves_no_word(stack: Stack) -> None:
    stack.serve("deleted", tiny.tiny_gguf())
    (engine,) = stack.engines("deleted")
    stack.remove_model("deleted")
    wait_for(lambda: engine not in stack.engines(), seconds=fair(30), what=f"the engine to end: {stack.tail()}")
    wait_for(
        lambda: not [row for row in stack.api().all("replicas") if row["model"] == "deleted"],
        seconds=fair(30), what="its replica to be gone", every=0.2,
    )  # fmt: skip
    assert stack.chat(model="deleted").status_code == 404


def test_a_killed_agent_adopts_the_same_engine_and_chats_go_on_meanwhile(stack: Stack) -> None:
    engines = stack.engines(MODEL)  # of others one may be ending
    before = _engines_written_at(stack)
    old = stack.kill("agent")
    assert stack.answers()
    wait_for(lambda: stack.pid("agent") not in (None, old), seconds=fair(30), what="another agent")
    wait_for(lambda: _engines_written_at(stack) > before, seconds=fair(30), what="its word of its engines")
    assert stack.answers()
    assert stack.engines(MODEL) == engines
    # it is really the new agent's: what it reports is ready under the same pid
    replicas = wait_for(
        lambda: [r for r in stack.api().all("replicas") if r["state"] == "ready" and r.get("pid") in engines],
        seconds=fair(30), what="the replica to be reported", every=0.2,
    )  # fmt: skip
    assert replicas


def _engines_written_at(stack: Stack) -> float:
    return float(json.loads((stack.data / "cluster" / "engines.json").read_text())["written_at"])


def test_a_killed_gateway_is_back_in_seconds(stack: Stack) -> None:
    before = stack.pid("gateway")
    stack.kill("gateway")
    wait_for(stack.answers, seconds=fair(15), what=f"an answer: {stack.tail()}", every=0.05)
    assert stack.pid("gateway") not in (None, before)


def test_chats_go_on_while_web_is_dead_and_it_is_back_in_seconds(stack: Stack) -> None:
    def asked() -> httpx.Response:
        return httpx.get(f"{stack.url}/api/v1/models", trust_env=False, verify=False, timeout=30)

    assert stack.process is not None
    stack.process.send_signal(signal.SIGSTOP)  # nobody starts another while we look
    try:
        stack.kill("web")
        for _ in range(8):  # kept connections may break under the first ones: then `web` may have had them, 502
            answer = asked()
            said = (answer.status_code, answer.json()["error"]["code"])
            if said != (502, "web_broken"):
                break
        assert said == (503, "web_unavailable")
        assert stack.answers()
    finally:
        stack.process.send_signal(signal.SIGCONT)
    wait_for(lambda: asked().status_code == 401, seconds=fair(15), what=f"web: {stack.tail()}", every=0.05)


def test_a_killed_worker_loses_no_job(stack: Stack) -> None:
    api = stack.api()
    path = tiny.tiny_gguf(name="tiny-killed")
    job = api.post("jobs", {"kind": "serve", "args": {"name": "tiny-killed", "path": str(path)}})
    try:
        for _ in range(2):
            stack.kill("worker")
            wait_for(lambda: stack.pid("worker"), seconds=fair(30), what="another worker")
        ended = wait_for(
            lambda: (now := api.get(f"jobs/{job['id']}"))["state"] not in ("queued", "running") and now,
            seconds=fair(60), what=f"the job to end: {stack.tail()}", every=0.2,
        )  # fmt: skip
        assert ended
        assert ended["state"] == "done", ended
        assert stack.answers("tiny-killed")
    finally:
        stack.remove_model("tiny-killed")


def test_a_killed_valkey_is_back_and_jobs_run_again(stack: Stack) -> None:
    old = stack.kill("valkey")
    assert stack.answers()
    wait_for(lambda: stack.pid("valkey") not in (None, old), seconds=fair(30), what="another Valkey")
    stack.serve("tiny-after", tiny.tiny_gguf(name="tiny-after"))
    assert stack.answers("tiny-after")
    stack.remove_model("tiny-after")
