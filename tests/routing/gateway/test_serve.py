"""The gateway process: three listeners, a taken port, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw_site.lib.clock import Clock
from llmgw_site.lib.config import Config
from llmgw_site.lib.unblocked import Unblocked
from routing.gateway import lifespan, serve
from tests.routing.gateway.listening import configured
from tests.routing.gateway.process import NAMES, Process, answers, free_ports, ready
from tests.routing.gateway.scripted import connected, until


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    made.end()


async def test_three_listeners_answer_and_sigterm_ends_them_cleanly(process: Process) -> None:
    child = process.start()
    await ready(process)
    assert await answers(process.client, b"/healthz") == 200
    assert await answers(process.client, b"/v1/nothing") == 404
    assert await answers(process.client, b"/admin/") == 503
    assert await answers(process.node, b"/healthz") == 200
    assert await answers(process.node, b"/v1/models") == 401
    assert await answers(process.metrics, b"/metrics") == 200
    assert await answers(process.metrics, b"/v1/models") == 404
    async with connected(process.client) as idle:
        await idle.send(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        await idle.response()
        child.send_signal(signal.SIGTERM)
        await until(lambda: child.poll() is not None)  # an idle connection holds nothing up
    assert child.returncode == 0
    events = [json.loads(line)["event"] for line in process.stderr().splitlines()]
    assert "gateway_ready" in events
    assert events[-1] == "gateway_stopped"


class Slow:
    """A stand-in for what `lifespan.build` gives: answers after `seconds`, and says whether it was stopped last."""

    def __init__(self, seconds: float) -> None:
        self.app = self.node_app = self.metrics_app = self.answer
        self.node_tls = None
        self.seconds = seconds
        self.asked = asyncio.Event()
        self.ended: list[str] = []

    async def start(self) -> None:
        self.ended.clear()

    async def stop(self) -> None:
        self.ended.append("stopped")

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        try:
            await asyncio.sleep(self.seconds)
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
            await send({"type": "http.response.body", "body": b"ok"})
            self.ended.append("answered")
        except asyncio.CancelledError:
            self.ended.append("cut")
            raise


async def test_what_is_built_is_told_since_when_calls_may_wait_at_the_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = dict(zip(("PORT", "NODE_PORT", "METRICS_PORT"), free_ports(3), strict=True))
    told: list[float] = []

    def build(config: Config, *, clock: Clock, since: float, out: Unblocked | None) -> Slow:
        with socket.create_connection(("127.0.0.1", ports["NODE_PORT"])):  # the kernel takes them already
            told.extend((since, clock.monotonic()))
        return Slow(0.0)

    monkeypatch.setattr(lifespan, "build", build)
    before, ready = time.monotonic(), asyncio.Event()
    running = asyncio.ensure_future(serve.run(configured(tmp_path, **ports), ready=ready.set))
    await ready.wait()
    assert before <= told[0] <= told[1]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(("seconds", "end"), [(0.5, "answered"), (60.0, "cut")])
async def test_at_sigterm_a_running_request_ends_within_the_grace_or_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, end: str
) -> None:
    monkeypatch.setattr(serve, "GRACE", 1)
    ports = dict(zip(("PORT", "NODE_PORT", "METRICS_PORT"), free_ports(3), strict=True))
    gateway, ready = Slow(seconds), asyncio.Event()
    running = asyncio.ensure_future(serve.run(configured(tmp_path, **ports), ready=ready.set, gateway=gateway))
    await ready.wait()
    async with connected(ports["PORT"]) as client:
        await client.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.wait_for(gateway.asked.wait(), 30)
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(30):
            await running
            if end == "answered":
                assert (await client.response())[2] == b"ok"
        assert await answers(ports["PORT"], b"/") == 0
    assert gateway.ended == [end, "stopped"]


@pytest.mark.parametrize("which", range(3))
async def test_a_taken_port_is_named_with_its_variable_and_the_exit_code_is_2(process: Process, which: int) -> None:
    with socket.create_server(("127.0.0.1", process.ports[which])):
        child = process.start()
        await until(lambda: child.poll() is not None)
    assert child.returncode == 2
    said = process.stderr()
    assert f"127.0.0.1:{process.ports[which]} is taken" in said
    assert f"set {NAMES[which]} " in said
    assert "Traceback" not in said
