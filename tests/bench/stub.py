"""A fast upstream: `python -m tests.bench.stub` prints its port and serves until its input ends.

Answers with 600 bytes of JSON, or, where the body has `"stream":true`, with `max_tokens` events that are `seed` ms
apart, each in a write of its own, then usage and `[DONE]`. Parses no more of a request than that.
"""

from __future__ import annotations

import asyncio
import re
import sys

import uvloop

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_PLAN = re.compile(rb'"max_tokens":(\d+),"seed":(\d+)')
_USAGE = b'"usage":{"prompt_tokens":200,"completion_tokens":100,"total_tokens":300}'
_TEXT = b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"%b"}}],%b}'
_FILL = 600 - len(_TEXT % (b"", _USAGE))
ANSWER = _TEXT % (b"x" * _FILL, _USAGE)
_WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(ANSWER), ANSWER)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_EVENT = b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"finish_reason":null,"delta":{"content":" token"}}]}\n\n'
EVENT = _chunk(_EVENT)
_END = (
    _chunk(
        b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],%b}\n\n'
        % _USAGE
    )
    + _chunk(b"data: [DONE]\n\n")
    + b"0\r\n\r\n"
)


class Stub(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._data = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        data = self._data + data if self._data else data
        head = data.find(b"\r\n\r\n")
        length = _LENGTH.search(data, 0, head) if head >= 0 else None
        if head < 0 or (length is not None and len(data) < head + 4 + int(length[1])):
            self._data = data
            return
        self._data = b""
        if b'"stream":true' not in data:
            self._transport.write(_WHOLE)
            return
        plan = _PLAN.search(data)
        assert plan is not None
        self._transport.write(_HEAD)
        self._stream(int(plan[1]), int(plan[2]) / 1000, self._loop.time())

    def _stream(self, left: int, pause: float, due: float) -> None:
        if self._transport.is_closing():
            return
        if not left:
            self._transport.write(_END)
            return
        self._transport.write(EVENT)
        self._loop.call_at(due + pause, self._stream, left - 1, pause, due + pause)


async def main() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Stub, "127.0.0.1", 0, backlog=2048)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)  # the parent's end is ours


if __name__ == "__main__":
    uvloop.run(main())
