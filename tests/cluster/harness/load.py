"""Many chats at once at a steady rate, and how each of them ended. A thin client: it must not be what is measured."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tests.cluster.harness.node import CLIENT_PORT, Node

MOST = 300
"""Requests under way at once, where a test names no other number."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What a client saw of one request. `status` 0: no answer at all."""

    request_id: str
    stream: bool
    started_s: float
    took_s: float
    status: int
    code: str  # of the error, in the body or in the last event
    done: bool  # a stream that ended with [DONE], or a whole answer with a choice
    pieces: int  # events of content before the end

    @property
    def succeeded(self) -> bool:
        return self.status == 200 and self.done and not self.code

    @property
    def lost(self) -> bool:
        """Ended as a request must whose node died: 502 before the first byte, an error event after it."""
        if self.status == 502:
            return self.code == "upstream_lost" and not self.done
        return self.status == 200 and self.stream and bool(self.code) and not self.done


async def load(
    node: Node,
    key: str,
    *,
    rate: float,
    seconds: float,
    model: str,
    max_tokens: int = 40,
    mark: str = "",
    most: int = MOST,
    meanwhile: Callable[[], Any] | None = None,
    at: float = 0.0,
) -> list[Ending]:
    """`rate` chats a second for `seconds`, every second one streamed; `meanwhile` runs in a thread `at` seconds after the start.

    No more than `most` are under way at once: a machine that cannot keep up is asked more slowly, since what would pile
    up in its queues would time out there, and say nothing of what the test does to the nodes.
    """
    loop = asyncio.get_running_loop()
    mark = mark or f"load-{secrets.token_hex(4)}"
    began = loop.time()
    tasks = []
    room = asyncio.Semaphore(most)
    other = asyncio.create_task(_later(at, meanwhile)) if meanwhile else None
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
        await room.acquire()
        body = {"model": model, "messages": [{"role": "user", "content": "Hi."}], "stream": number % 2 == 0,
                "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0}  # fmt: skip
        task = asyncio.create_task(ask(node, key, f"{mark}-{number}", body, began=began))
        task.add_done_callback(lambda _: room.release())
        tasks.append(task)
    endings = await asyncio.gather(*tasks)
    if other is not None:
        await other
    return list(endings)


async def _later(at: float, work: Callable[[], Any]) -> None:
    await asyncio.sleep(at)
    await asyncio.to_thread(work)


async def ask(node: Node, key: str, request_id: str, body: dict[str, Any], *, began: float = 0.0) -> Ending:
    """One request on a connection of its own, sent once."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    raw = orjson.dumps(body)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: {node.host}\r\nauthorization: Bearer {key}\r\n"
        f"x-request-id: {request_id}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\nconnection: close\r\n\r\n"
    )
    answer = b""
    try:
        reader, writer = await asyncio.open_connection(node.host, CLIENT_PORT)
        try:
            writer.write(head.encode() + raw)
            async with asyncio.timeout(60):
                answer = await reader.read(-1)
        finally:
            writer.close()
    except (OSError, TimeoutError):
        pass
    return ending(
        answer, request_id, stream=bool(body["stream"]), started_s=started - began, took_s=loop.time() - started
    )


def ending(answer: bytes, request_id: str, *, stream: bool, started_s: float, took_s: float) -> Ending:
    """Read an answer that was ended by the connection's end."""
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1]) if head.startswith(b"HTTP/1.1 ") else 0
    if b"transfer-encoding: chunked" in head.lower():
        body = _unchunked(body)
    code, done, pieces = "", False, 0
    if stream and status == 200:
        for line in body.split(b"\n"):
            data = line.removeprefix(b"data: ").strip()
            if not line.startswith(b"data: "):
                continue
            if data == b"[DONE]":
                done = True
            elif b'"error"' in data[:20]:
                code = str(orjson.loads(data)["error"].get("code") or "error")
            else:
                pieces += 1
    elif status:
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            found = {}
        code = str((found.get("error") or {}).get("code") or "")
        done = bool(found.get("choices"))
    return Ending(
        request_id=request_id,
        stream=stream,
        started_s=started_s,
        took_s=took_s,
        status=status,
        code=code,
        done=done,
        pieces=pieces,
    )


def _unchunked(body: bytes) -> bytes:
    out = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        try:
            length = int(size, 16)
        except ValueError:
            break
        out.append(rest[:length])
        body = rest[length + 2 :]
    return b"".join(out)


def tally(endings: Iterable[Ending]) -> dict[str, int]:
    """How many ended how, for people."""
    kinds: Counter[str] = Counter()
    for item in endings:
        kind = "stream" if item.stream else "whole"
        kinds[
            f"{kind} {item.status}{' ' + item.code if item.code else ''}{'' if item.done or item.code else ' cut'}"
        ] += 1
    return dict(sorted(kinds.items()))
