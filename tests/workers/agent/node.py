"""A node under test: a real agent process (or one in this process), and a small controller that checks signatures."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import uvicorn

from catalog.domain.manifests import Manifest
from cluster.domain import signing
from cluster.domain.modules import ModuleMap
from cluster.wire import (
    EnginesFile,
    FetchOrder,
    Heartbeat,
    Load,
    LocalEngine,
    Nudge,
    Serve,
    UsageBatch,
    Wanted,
    WantedReplica,
    Weights,
    from_dict,
    to_dict,
)
from tests.processes import alive, free_port, stop, wait_for
from tests.tiny import tiny_gguf
from workers.agent import process

TOP = Path(__file__).resolve().parents[3]
AGENT = "from workers.agent import __main__, loop; loop.HANDOVER = 0.2; __main__.main(__main__.load())"
"""The agent's program; here no router has to hear of an engine that is to stop."""
NODE_ID, NODE_KEY, CONTROLLER_KEY = "node_1", "11" * 32, "22" * 32
KEY = signing.pairwise_key(CONTROLLER_KEY, signing.public_hex(NODE_KEY))
R = "rep_1"


def serve_tiny(**changes: Any) -> Serve:
    """The tiny real model, as the controllers would want it served."""
    path = tiny_gguf(pooling="mean" if changes.get("embeddings") else None)
    base = Serve(
        engine="llama.cpp", model="tiny", weights=Weights(path=str(path), size=path.stat().st_size), context=512,
        slots=2, threads=1, drain_timeout=20.0,
    )  # fmt: skip
    return replace(base, **changes)


class Controller:
    """Answers as web does behind the node listener: verified calls, signed answers. Change its fields at will."""

    def __init__(self) -> None:
        self.port = free_port()
        self.wanted: tuple[WantedReplica, ...] = ()
        self.snapshot_version, self.snapshot = "", b""
        self.beats: list[Heartbeat] = []
        self.stored: list[str] = []
        self.refused: list[str] = []
        self.sign_with: bytes | None = KEY
        self.status, self.error = 200, "internal"
        self.turned_away = 0  # heartbeats that were answered with another status than 200
        self.heartbeat = 0.1
        self.map: ModuleMap | None = None
        self.roles: tuple[str, ...] | None = None
        self.fetches: tuple[FetchOrder, ...] = ()
        self.kept: tuple[str, ...] | None = None
        self.manifests: dict[str, Manifest] = {}
        self.connections = 0  # websockets that stand
        self._nudges: list[tuple[Any, asyncio.AbstractEventLoop]] = []
        self._seen = signing.Seen()
        config = uvicorn.Config(
            self._app, host="127.0.0.1", port=self.port, log_config=None, lifespan="off", interface="asgi3"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        wait_for(lambda: self._server.started, what="the controller to listen")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10)

    def nudge(self, **fields: Any) -> None:
        """Through every websocket that stands."""
        text = orjson.dumps(to_dict(Nudge(**fields))).decode()
        for send, loop in list(self._nudges):
            asyncio.run_coroutine_threadsafe(send({"type": "websocket.send", "text": text}), loop).result(30)

    async def _websocket(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        call = signing.read(headers)
        good = call and not signing.verify(KEY, call, method="GET", path=scope["path"], body=b"", now=time.time())
        if not good or self.status != 200:
            await send({"type": "websocket.close", "code": 4403})
            return
        await send({"type": "websocket.accept"})
        known = send, asyncio.get_running_loop()
        self._nudges.append(known)
        self.connections += 1
        while (await receive())["type"] != "websocket.disconnect":
            pass
        self._nudges.remove(known)
        self.connections -= 1

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        path = scope["raw_path"].decode() + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        call = signing.read(headers)
        problem = "unsigned" if call is None else None
        if call is not None:
            problem = signing.verify(KEY, call, method=scope["method"], path=path, body=body, now=time.time())
            if problem is None and not self._seen.first(call, now=time.time()):
                problem = "call_repeated"
        if problem is not None:
            self.refused.append(problem)
            status, answer = 401, b"{}"
        else:
            status, answer = self._answer(scope["path"], scope["query_string"].decode(), body)
        out = [(b"content-type", b"application/json")]
        if self.sign_with is not None and call is not None:
            signed = signing.sign_answer(self.sign_with, nonce=call.signature, status=status, body=answer)
            out.append((signing.SIGNATURE.encode(), signed.encode()))
        await send({"type": "http.response.start", "status": status, "headers": out})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, path: str, query: str, body: bytes) -> tuple[int, bytes]:
        if self.status != 200:
            self.turned_away += path.endswith("/heartbeat")
            return self.status, orjson.dumps({"error": {"code": self.error}})
        if path.endswith("/heartbeat"):
            self.beats.append(from_dict(Heartbeat, orjson.loads(body)))
            held = self.beats[-1].map_version
            wanted = Wanted(
                server_time=time.time(), snapshot_version=self.snapshot_version, replicas=self.wanted,
                heartbeat=self.heartbeat, roles=self.roles, map_version=self.map.version if self.map else "",
                map=self.map if self.map and self.map.version != held else None, fetches=self.fetches, kept=self.kept,
            )  # fmt: skip
            return 200, orjson.dumps(to_dict(wanted))
        if path.endswith("/certificate"):
            return 503, b"{}"
        if path.endswith("/manifest"):
            found = self.manifests.get(httpx.QueryParams(query).get("version", ""))
            return (200, orjson.dumps(found.as_dict())) if found else (404, b'{"error": {"code": "version_unknown"}}')
        if path.endswith("/snapshot"):
            have = httpx.QueryParams(query).get("have")
            return (304, b"") if have == self.snapshot_version else (200, self.snapshot)
        batch = from_dict(UsageBatch, orjson.loads(body))
        ids = [record["record_id"] for record in batch.records]
        self.stored += ids
        return 200, orjson.dumps({"stored": ids})


class Node:
    """A data folder with an identity, a controller, and at most one agent process."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.controller = Controller()
        self.agent: subprocess.Popen[bytes] | None = None
        self.log = data / "agent.log"
        (data / "node").mkdir(parents=True)
        identity = {
            "node_id": NODE_ID,
            "private_key": NODE_KEY,
            "controller_public_key": signing.public_hex(CONTROLLER_KEY),
        }
        (data / "node" / "identity.json").write_text(json.dumps(identity))

    def environ(self, **extra: str) -> dict[str, str]:
        return {
            **os.environ,
            "LLMGW_DATA": str(self.data),
            "LLMGW_CONTROLLERS": self.controller.url,
            "LLMGW_LOG_STYLE": "text",
            **extra,
        }

    def start_agent(self, **extra: str) -> subprocess.Popen[bytes]:
        self.controller.beats.clear()  # what an earlier agent said is no word of this one
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(
                [sys.executable, "-c", AGENT], cwd=TOP, env=self.environ(**extra), stdout=log, stderr=log
            )
        return self.agent

    def end_agent(self, number: int = signal.SIGTERM) -> int:
        assert self.agent is not None
        self.agent.send_signal(number)
        return self.agent.wait(60)

    def want(self, *, generation: int = 1, run: bool = True, serve: Serve | None = None) -> None:
        wanted = WantedReplica(replica_id=R, generation=generation, run=run, serve=serve or serve_tiny())
        self.controller.wanted = (wanted,)

    def engines(self) -> EnginesFile:
        try:
            return from_dict(EnginesFile, orjson.loads((self.data / "cluster" / "engines.json").read_bytes()))
        except FileNotFoundError:
            return EnginesFile(written_at=0.0)

    def engine(self, state: str = "ready") -> LocalEngine | None:
        return next((engine for engine in self.engines().engines if engine.state == state), None)

    def wait_ready(self, *, other_than: LocalEngine | None = None, seconds: float = 60.0) -> LocalEngine:
        """The engine that is offered to the gateway, another one than that: the next may well get its port."""
        return wait_for(
            lambda: (e := self.engine()) and (other_than is None or e.key != other_than.key) and e,
            seconds=seconds,
            what=f"a ready engine; {self.tail}",
        )  # type: ignore[return-value]

    def report(self, condition: Callable[[Any], Any], *, seconds: float = 60.0, what: str = "a report") -> Any:
        """The replica's part of the latest heartbeat, as soon as it meets the condition."""

        def look() -> Any:
            beats = self.controller.beats[-1:]
            found = next((r for beat in beats for r in beat.replicas if r.replica_id == R), None)
            return found if found is not None and condition(found) else None

        return wait_for(look, seconds=seconds, what=f"{what}; {self.tail}")

    @property
    def tail(self) -> str:
        return self.log.read_text()[-1500:] if self.log.exists() else ""

    def pids(self) -> list[int]:
        return [found.pid for found in process.find(self.data)]

    @contextmanager
    def gateway(self) -> Iterator[Callable[[Load], None]]:
        """A connection to agent.sock that tells load."""
        path = self.data / "run" / "agent.sock"
        wait_for(path.exists, what="agent.sock")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            yield lambda load: connection.sendall(orjson.dumps(to_dict(load)) + b"\n")

    def close(self) -> None:
        if self.agent is not None:
            stop(self.agent)
        stop_engines(self.data, grace=0.5)
        self.controller.stop()
        wait_for(lambda: not self.pids(), what="engines to end")


def chat(engine: LocalEngine) -> str:
    """A real chat with the engine, as the gateway would send it."""
    answer = httpx.post(
        f"http://127.0.0.1:{engine.port}/v1/chat/completions",
        headers={"authorization": f"Bearer {engine.key}"},
        json={"model": engine.served_name, "messages": [{"role": "user", "content": "Hi"}], "temperature": 0},
        timeout=30,
        trust_env=False,
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def ended(pid: int) -> None:
    wait_for(lambda: not alive(pid), what=f"process {pid} to end")


def broken_weights(folder: Path) -> Path:
    """A copy of the tiny model that is cut off in its tensors."""
    path = folder / "cut.gguf"
    shutil.copy(tiny_gguf(), path)
    os.truncate(path, 200_000)
    return path


def stop_engines(data: Path, *, grace: float = 5.0) -> list[int]:
    """End every engine of this data folder: SIGTERM, after `grace` seconds SIGKILL; the pids."""
    engines = process.find(data)
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        left = [engine for engine in engines if process.start_time_of(engine.pid) == engine.start_time]
        for engine in left:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(engine.pid, number)
        end = time.monotonic() + patience
        while time.monotonic() < end and any(process.start_time_of(e.pid) == e.start_time for e in left):
            time.sleep(0.02)
    return [engine.pid for engine in engines]
