"""An external provider that is strict about what it is sent: its own key, its own model's name, and no header of a client.

What it finds wrong stands in `wrong`, and is answered as such a provider does. Beyond that it does what the prompt says,
as tests/fakes/scripted_engine.py. Runs in a test's event loop; alone by

    python -m tests.fakes.provider PORT KEY MODEL
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import zlib
from typing import Any

from tests.fakes.scripted_engine import Script, ScriptedEngine, Seen, _chunk, _events, _head

HEADERS = {"host", "content-length", "content-type", "accept", "accept-encoding", "user-agent", "authorization"}
"""All that a provider may be told."""


class Provider(ScriptedEngine):
    """`async with Provider(key="sk-…", model="gpt-9") as provider: provider.url`. An empty key: none is wanted."""

    def __init__(
        self, *, key: str = "", model: str = "gpt-9", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(port=port)
        self.key = key
        self.model = model
        self.wrong: list[str] = []
        self._tls = tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._back(), ssl=self._tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _answer(self, seen: Seen, script: Script, writer: asyncio.StreamWriter) -> None:
        refusal = self._refusal(seen)
        if refusal is None:
            await super()._answer(seen, script, writer)
            return
        status, code, message = refusal
        self.wrong.append(f"{code}: {message}")
        body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": code, "param": None}})
        writer.write(
            _head(status, [["Content-Type", "application/json"], ["Content-Length", len(body)]]) + body.encode()
        )
        await writer.drain()

    def _refusal(self, seen: Seen) -> tuple[int, str, str] | None:
        spoken = {"anthropic-version", "anthropic-beta"} if seen.path.startswith("/v1/messages") else set()
        strange = sorted({name for name, _ in seen.raw_headers} - HEADERS - spoken)
        if strange:
            return 400, "strange_headers", f"What is {', '.join(strange)}?"
        if len(seen.raw_headers) != len(seen.headers):
            return 400, "doubled_headers", "A header came twice."
        wanted = f"Bearer {self.key}" if self.key else None
        if seen.headers.get("authorization") != wanted:
            return 401, "invalid_api_key", f"Incorrect API key provided: {seen.headers.get('authorization')}."
        if seen.headers.get("accept-encoding") != "identity":
            return 400, "coding", "We might answer in any coding."
        if seen.headers.get("content-type", "").startswith("multipart/"):
            known = f'name="model"\r\n\r\n{self.model}\r\n'.encode() in seen.body
        else:
            known = seen.json.get("model") == self.model
        if not known:
            return 404, "model_not_found", "The model does not exist."
        return None

    async def _stream(self, seen: Seen, ask: Any, script: Script, writer: asyncio.StreamWriter) -> None:
        if not script.gzip:
            await super()._stream(seen, ask, script, writer)
            return
        head = [["Content-Type", "text/event-stream"], ["Transfer-Encoding", "chunked"], ["Content-Encoding", "gzip"]]
        writer.write(_head(200, head))
        packer = zlib.compressobj(wbits=31)
        for event in _events(ask, script):
            if isinstance(event, float):
                await asyncio.sleep(event)
            else:
                await _chunk(writer, packer.compress(str(event).encode()) + packer.flush(zlib.Z_SYNC_FLUSH), script)
        await _chunk(writer, packer.flush(), script)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


async def _alone(port: int, key: str, model: str) -> None:
    async with Provider(key=key, model=model, port=port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_alone(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
