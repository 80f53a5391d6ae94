"""A stub of an external provider: an OpenAI-compatible server that notes what it is sent."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

PORT = 9000
EXTERNAL, THEIRS = "far", "their-big-model"
"""The model as our catalogue calls it, and as the provider does."""
KEY = "sk-of-the-provider-alone"
TEXT = "Hello from far away."


class Provider:
    """Serves on `host`:PORT while the block lasts. `seen`: headers (lower-case) and body of each request."""

    def __init__(self, host: str) -> None:
        self.seen: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.pause = 0.0
        self._server = ThreadingHTTPServer((host, PORT), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://{host}:{PORT}/v1"

    def mend(self) -> None:
        self.seen.clear()
        self.pause = 0.0

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, name="provider", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(provider: Provider) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                provider.seen.append(({name.lower(): value for name, value in self.headers.items()}, body))
                time.sleep(provider.pause)
                if self.headers.get("authorization") != f"Bearer {KEY}":
                    self._whole(
                        401,
                        {"error": {"message": "wrong key", "type": "invalid_request_error", "code": "invalid_api_key"}},
                    )
                elif body.get("stream"):
                    self._stream(body["model"])
                else:
                    message = {"role": "assistant", "content": TEXT}
                    choice = {"index": 0, "message": message, "finish_reason": "stop"}
                    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
                    self._whole(
                        200,
                        {
                            "id": "x",
                            "object": "chat.completion",
                            "model": body["model"],
                            "choices": [choice],
                            "usage": usage,
                        },
                    )

            def _whole(self, status: int, body: dict[str, Any]) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _stream(self, model: str) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for word in TEXT.split():
                    choice = {"index": 0, "delta": {"content": word + " "}, "finish_reason": None}
                    self._event(
                        json.dumps({"id": "x", "object": "chat.completion.chunk", "model": model, "choices": [choice]})
                    )
                self._event("[DONE]")
                self.wfile.write(b"0\r\n\r\n")

            def _event(self, text: str) -> None:
                data = f"data: {text}\n\n".encode()
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

            def log_message(self, *args: Any) -> None:
                pass

        return Handler


def offer(api: Any, provider: Provider) -> None:
    """Put the provider and its model into the catalogue, with the admin API."""
    made = api.post("providers", {"name": "stub", "url": provider.url, "api_key": KEY})
    api.post("models", {"name": EXTERNAL, "provider": made["id"], "provider_model": THEIRS})
