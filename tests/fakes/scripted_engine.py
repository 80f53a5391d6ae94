"""An engine that does what the last message tells it: a raw server, so it can also break every rule of HTTP.

The prompt is a JSON object, a `Script`; any other text is answered with three tokens. `requests` holds what came in,
with what became of it. Runs in a test's event loop; `python -m tests.fakes.scripted_engine PORT` runs it alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import re
import socket
import struct
import sys
import time
from dataclasses import dataclass, field, fields
from typing import Any

from tests.processes import reserved


@dataclass
class Script:
    """What to do with one request; spans in seconds."""

    silent: float = 0.0  # before the head
    head_silent: float = 0.0  # between the head and the first body byte
    never: bool = False  # accept and say nothing
    held: bool = False  # before the head, until `release` is set
    head_held: bool = False  # the same, between the head and the first body byte
    reset: bool = False  # RST after the request, before the head
    tokens: int = 3
    gap: float = 0.0  # between two tokens
    die_after: int | None = None  # RST after so many tokens
    die_within: int | None = None  # RST in the middle of this token's event
    cut_after: int | None = None  # a clean end without [DONE] after so many tokens
    error_after: int | None = None  # an error event of the engine's own
    status: int = 200
    body: str | None = None  # instead of the usual one
    gzip: bool = False
    headers: list[list[str]] = field(default_factory=list)
    usage: bool = True  # whether it can count
    usage_in_last: bool = False  # in the last chunk with a choice, not in a chunk of its own
    null_usage: bool = False  # "usage": null in each chunk, as OpenAI does
    cached: int = 0
    timings: bool = False
    line_end: str = "\n"
    chop: int = 0  # send in pieces of so many bytes
    ping: bool = False  # a comment before the first token
    pings: int = 0  # comments after the first token, a gap between each two


@dataclass
class Seen:
    """One request as the engine got it, and how it ended."""

    path: str
    headers: dict[str, str]
    raw_headers: list[tuple[str, str]]
    body: bytes
    at: float
    aborted_at: float | None = None  # the gateway closed before the end
    done: bool = False
    sent: int = 0  # tokens of a stream that were written

    @property
    def json(self) -> Any:
        """Of a form nothing."""
        return {} if self.headers.get("content-type", "").startswith("multipart/") else json.loads(self.body)


class ScriptedEngine:
    """`async with ScriptedEngine() as engine: engine.port`."""

    def __init__(self, *, port: int = 0) -> None:
        self.port = port
        self.requests: list[Seen] = []
        self.says: dict[str, str | None] = {"/v1/models": None, "/metrics": None}  # None: 404
        self.questions: list[str] = []
        self.unknown: set[str] = set()  # paths that are not there
        self.release = asyncio.Event()  # what is held goes on
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._away: socket.socket | None = None  # keeps its port while it is stopped

    async def __aenter__(self) -> ScriptedEngine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self._back()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._back())
        self.port = self._server.sockets[0].getsockname()[1]

    def _back(self) -> int:
        """Its port, that nobody else took while it was stopped."""
        if self._away is not None:
            self._away.close()
            self._away = None
        return self.port

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._back()
        self._away = reserved(self.port)

    @property
    def last(self) -> Seen:
        return self.requests[-1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while (seen := await self._read(reader)) is not None:
                if seen.path in self.says:
                    self.questions.append(seen.path)
                    await self._say(self.says[seen.path], writer)
                    continue
                self.requests.append(seen)
                await self._watched(seen, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _say(self, text: str | None, writer: asyncio.StreamWriter) -> None:
        """Answer a question about the engine itself."""
        body = (text or "").encode()
        status = "404 Not Found" if text is None else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> Seen | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.rstrip("\r\n").split("\r\n")
        raw = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        headers = dict(raw)
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(await reader.readline(), 16):
                body += await reader.readexactly(size)
                await reader.readline()
            await reader.readline()
        else:
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Seen(first.split()[1], headers, raw, body, time.monotonic())

    async def _watched(self, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer; the other side's closing in the meantime cancels the work, as in a real engine."""
        answer = asyncio.ensure_future(self._answer(seen, _script(seen), writer))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                seen.aborted_at = time.monotonic()
                raise ConnectionResetError
            await answer
            seen.done = True
        except ConnectionError:
            seen.aborted_at = seen.aborted_at or time.monotonic()
            raise
        finally:
            for task in (answer, gone):
                task.cancel()
            await asyncio.gather(answer, gone, return_exceptions=True)

    async def _answer(self, seen: Seen, script: Script, writer: asyncio.StreamWriter) -> None:
        if script.never:
            await asyncio.Event().wait()
        if script.held:
            await self.release.wait()
        await asyncio.sleep(script.silent)
        if script.reset:
            await _reset(writer)
            raise ConnectionResetError
        ask = seen.json
        if seen.path in self.unknown:
            script = Script(status=404, body='{"detail":"Not Found"}')
        if ask.get("stream") and script.status == 200 and script.body is None:
            await self._stream(seen, ask, script, writer)
        else:
            await self._whole(seen, ask, script, writer)

    async def _whole(self, seen: Seen, ask: Any, script: Script, writer: asyncio.StreamWriter) -> None:
        kind = "application/json"
        if seen.path == "/v1/audio/speech" and script.body is None:
            kind, body = "audio/wav", SOUND
        elif seen.path.startswith(("/v1/audio/", "/v1/images/")) and script.body is None:
            body = json.dumps({"text": "heard", "size": len(seen.body)}).encode()
        else:
            body = (script.body or json.dumps(_document(seen.path, ask, script))).encode()
        extra = [*script.headers, ["Content-Encoding", "gzip"]] if script.gzip else script.headers
        if script.gzip:
            body = gzip.compress(body)
        writer.write(_head(script.status, [["Content-Type", kind], ["Content-Length", len(body)], *extra]))
        await self._after_head(script)
        if script.die_after is not None:
            writer.write(body[: len(body) // 2])
            await writer.drain()
            await _reset(writer)
            raise ConnectionResetError
        writer.write(body)
        await writer.drain()

    async def _after_head(self, script: Script) -> None:
        if script.head_held:
            await self.release.wait()
        await asyncio.sleep(script.head_silent)

    async def _stream(self, seen: Seen, ask: Any, script: Script, writer: asyncio.StreamWriter) -> None:
        head = [["Content-Type", "text/event-stream"], ["Transfer-Encoding", "chunked"], *script.headers]
        writer.write(_head(200, head))
        await writer.drain()
        await self._after_head(script)
        if script.ping:
            await _chunk(writer, b": ping" + script.line_end.encode() * 2, script)
        for event in _named(seen, script) if seen.path in NAMED else _events(ask, script):
            if event == RESET:
                await _reset(writer)
                raise ConnectionResetError
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                seen.sent += f'"t{seen.sent} "' in str(event)
                await _chunk(writer, str(event).replace("\n", script.line_end).encode(), script)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


RESET = object()
_PROMPT = re.compile(rb'form-data; name="prompt"\r\n\r\n(.*)\r\n')
SOUND = b"RIFF\x00\xff\r\n" + bytes(range(256)) * 400
NAMED = {
    "/v1/messages": ("content_block_delta", "message_stop"),
    "/v1/responses": ("response.output_text.delta", "response.completed"),
}
"""Paths whose streams have named events: the one that brings a token, and the last."""


def _script(seen: Seen) -> Script:
    ask = seen.json
    text = ask.get("prompt") or ask.get("input") or (ask.get("messages") or [{}])[-1].get("content")
    if (field := _PROMPT.search(seen.body)) is not None:
        text = field[1].decode()
    with contextlib.suppress(json.JSONDecodeError, TypeError):
        wish = json.loads(text)
        if isinstance(wish, dict):
            return Script(**{item.name: wish[item.name] for item in fields(Script) if item.name in wish})
    return Script()


def _named(seen: Seen, script: Script) -> Any:
    """As `_events`, in named events: what llmgw reads of them."""
    token, last = NAMED[seen.path]
    anthropic = seen.path == "/v1/messages"

    def event(kind: str, **more: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more})}\n\n"

    if anthropic:
        yield event("message_start", message={"usage": {"input_tokens": 7 - script.cached, "output_tokens": 1, "cache_read_input_tokens": script.cached}})  # fmt: skip
    else:
        yield event("response.created", response={"status": "in_progress"})
    for number in range(script.tokens):
        if number == script.die_after:
            yield RESET
        if number == script.cut_after:
            return
        if number == script.error_after:
            yield event("error", error={"message": "boom", "type": "overloaded_error"})
            return
        text = f"t{number} "
        yield event(token, delta={"type": "text_delta", "text": text} if anthropic else text)
        if script.gap:
            yield script.gap
    if anthropic:
        yield event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": script.tokens})
        yield event(last)
    else:
        details = {"input_tokens_details": {"cached_tokens": script.cached}}
        yield event(last, response={"usage": {"input_tokens": 7, "output_tokens": script.tokens, **details}})


def _events(ask: Any, script: Script) -> Any:
    """Texts of events, pauses (float), RESET."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": ask["model"]}
    if script.null_usage:
        base["usage"] = None
    counted = _usage(script) if script.usage else {}
    for number in range(script.tokens):
        if number == script.die_after:
            yield RESET
        if number == script.cut_after:
            return
        if number == script.error_after:
            yield f"data: {json.dumps({'error': {'message': 'boom', 'code': 500, 'type': 'server_error'}})}\n\n"
            return
        choice = {"index": 0, "delta": {"content": f"t{number} "}, "finish_reason": None}
        event = f"data: {json.dumps({**base, 'choices': [choice]})}\n\n"
        if number == script.die_within:
            yield event[: len(event) // 2]
            yield 0.05
            yield RESET
        yield event
        if script.gap:
            yield script.gap
        for _ in range(0 if number else script.pings):
            yield ": ping\n\n"
            yield script.gap
    if script.die_after is not None and script.die_after >= script.tokens:
        yield RESET
    last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    if script.usage_in_last:
        last.update(counted)
    elif script.timings:
        last["timings"] = {"prompt_n": 5, "cache_n": 2, "predicted_n": script.tokens, "predicted_ms": 1.5}
    yield f"data: {json.dumps(last)}\n\n"
    if (ask.get("stream_options") or {}).get("include_usage") and counted and not script.usage_in_last:
        yield f"data: {json.dumps({**base, 'choices': [], **counted})}\n\n"
    yield "data: [DONE]\n\n"


def _usage(script: Script) -> dict[str, Any]:
    usage: dict[str, Any] = {
        "prompt_tokens": 7,
        "completion_tokens": script.tokens,
        "total_tokens": 7 + script.tokens,
    }
    if script.cached:
        usage["prompt_tokens_details"] = {"cached_tokens": script.cached}
    return {"usage": usage}


def _document(path: str, ask: Any, script: Script) -> dict[str, Any]:
    if path.endswith("/embeddings"):
        usage = {"prompt_tokens": 7, "total_tokens": 7}
        data = [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]
        return {"model": ask["model"], "object": "list", "usage": usage, "data": data}
    text = "".join(f"t{number} " for number in range(script.tokens))
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
    choice.update({"message": {"role": "assistant", "content": text}} if "messages" in ask else {"text": text})
    document = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": ask["model"]}
    return {**document, "choices": [choice], **(_usage(script) if script.usage else {})}


def _head(status: int, headers: list[list[Any]]) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode()


async def _chunk(writer: asyncio.StreamWriter, data: bytes, script: Script) -> None:
    size = script.chop or len(data)
    for start in range(0, len(data), size):
        piece = data[start : start + size]
        if writer.is_closing():
            raise ConnectionResetError
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
        if script.chop:
            await asyncio.sleep(0.001)


async def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST instead of FIN, which takes along what the other side has not read: one in this loop gets a few rounds for it."""
    for _ in range(5):
        await asyncio.sleep(0)
    handle = writer.get_extra_info("socket")
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _main(port: int) -> None:
    async with ScriptedEngine(port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
