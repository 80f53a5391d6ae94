"""A tiny OpenAI-speaking engine that misbehaves on demand; runnable alone, standard library only.

    LLMGW_ENGINE_KEY=k python tests/fakes/engine.py --port 4000 --load-for 30 --token-delay 0.1

Used where the real engine cannot be made to misbehave. It speaks /health, /metrics, /props, /v1/models, completions,
chat completions (streamed or not) and embeddings, all but /health behind the key.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

WORDS = ("Hello", " from", " a", " fake", " engine", ".")


def parser() -> argparse.ArgumentParser:
    out = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    out.add_argument("--port", type=int, required=True)
    out.add_argument("--model", default="fake")
    out.add_argument("--load-for", type=float, default=0.0, help="seconds that /health says 503")
    out.add_argument("--never-ready", action="store_true", help="/health says 503 for ever")
    out.add_argument("--wedged", action="store_true", help="/health says 200, but no token ever comes")
    out.add_argument(
        "--wedge-after", type=int, default=0, help="tokens after which /health says 200 and no token comes"
    )
    out.add_argument("--first-token", type=float, default=0.0, help="seconds before the first token")
    out.add_argument("--token-delay", type=float, default=0.0, help="seconds between tokens")
    out.add_argument("--crash-after", type=int, default=0, help="tokens after which the process kills itself")
    out.add_argument("--exit", type=int, help="end at once with this code")
    out.add_argument("--ignore-term", action="store_true")
    out.add_argument("--noise", type=int, default=0, help="bytes of log to write, one line of 100 each")
    return out


class Engine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(("127.0.0.1", options.port), Handler)
        self.options = options
        self.key = os.environ.pop("LLMGW_ENGINE_KEY", "")
        self.started = time.monotonic()
        self.tokens = 0
        self.working = 0
        self.lock = threading.Lock()

    @property
    def loaded(self) -> bool:
        return not self.options.never_ready and time.monotonic() - self.started >= self.options.load_for

    def token(self) -> None:
        """Count one token; the process dies with the one that was asked for."""
        with self.lock:
            self.tokens += 1
            if self.options.crash_after and self.tokens >= self.options.crash_after:
                os.kill(os.getpid(), signal.SIGKILL)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine
    read = 1
    """Tokens of the prompt."""

    def log_message(self, format: str, *args: Any) -> None:
        sys.stderr.write(f"{self.command} {self.path}\n")

    def answer(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def tell(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def figures(self) -> str:
        """Its metrics, as llama.cpp writes them."""
        working, tokens = self.server.working, self.server.tokens
        return (
            f"# HELP llamacpp:requests_processing Number of requests processing.\n"
            f"# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing {min(working, 1)}\n"
            f"llamacpp:requests_deferred {max(0, working - 1)}\n"
            f"llamacpp:tokens_predicted_total {tokens}\nllamacpp:n_decode_total {tokens}\n"
        )

    def refuse(self, status: int, message: str) -> None:
        self.answer(status, {"error": {"code": status, "message": message, "type": "unavailable_error"}})

    def ready_for(self, path: str) -> bool:
        if path == "/health":
            return True
        if self.server.key and self.headers.get("authorization") != f"Bearer {self.server.key}":
            self.refuse(401, "Invalid API Key")
            return False
        if not self.server.loaded:
            self.refuse(503, "Loading model")
            return False
        return True

    def do_GET(self) -> None:
        if not self.ready_for(self.path):
            return
        options = self.server.options
        if self.path == "/health":
            if self.server.loaded:
                self.answer(200, {"status": "ok"})
            else:
                self.refuse(503, "Loading model")
        elif self.path == "/metrics":
            self.tell(self.figures())
        elif self.path == "/props":
            self.answer(200, {"total_slots": 1, "default_generation_settings": {"n_ctx": 1024}})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": options.model, "object": "model"}]})
        else:
            self.refuse(404, "File Not Found")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if not self.ready_for(self.path):
            return
        with self.server.lock:
            self.server.working += 1
        try:
            self.compute(body)
        finally:
            with self.server.lock:
                self.server.working -= 1

    def compute(self, body: dict[str, Any]) -> None:
        options = self.server.options
        if options.wedged or 0 < options.wedge_after <= self.server.tokens:
            threading.Event().wait()
        time.sleep(options.first_token)
        if self.path == "/v1/embeddings":
            self.server.token()
            data = [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}]
            self.answer(200, {"object": "list", "data": data, "usage": {"prompt_tokens": 1, "total_tokens": 1}})
        elif self.path in ("/v1/completions", "/v1/chat/completions"):
            words = list(WORDS[: body.get("max_tokens") or len(WORDS)])
            if body.get("stream"):
                self.stream(words, counts=bool((body.get("stream_options") or {}).get("include_usage")))
            else:
                self.whole(words)
        else:
            self.refuse(404, "File Not Found")

    def pace(self, words: list[str]) -> Any:
        for number, word in enumerate(words):
            if number:
                time.sleep(self.server.options.token_delay)
            self.server.token()
            yield word

    def whole(self, words: list[str]) -> None:
        text = "".join(self.pace(words))
        chat = self.path == "/v1/chat/completions"
        choice = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        usage = self.usage(words)
        self.answer(200, {"id": "fake", "choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": usage})

    def usage(self, words: list[str]) -> dict[str, int]:
        return {"prompt_tokens": self.read, "completion_tokens": len(words), "total_tokens": self.read + len(words)}

    def stream(self, words: list[str], *, counts: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        chat = self.path == "/v1/chat/completions"
        for word in self.pace(words):
            choice = {"index": 0, **({"delta": {"content": word}} if chat else {"text": word})}
            self.chunk(json.dumps({"id": "fake", "choices": [choice]}))
        if counts:
            self.chunk(json.dumps({"id": "fake", "choices": [], "usage": self.usage(words)}))
        self.chunk("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def chunk(self, text: str) -> None:
        data = f"data: {text}\n\n".encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def main() -> None:
    options = parser().parse_args()
    if options.exit is not None:
        sys.stderr.write(f"fake engine: ends with {options.exit}, as asked\n")
        sys.exit(options.exit)
    if options.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    engine = Engine(options)
    for number in range(options.noise // 100):
        try:
            os.write(2, f"{number:099d}\n".encode())
        except OSError:  # the log's bound: a real engine goes on as well
            break
    engine.serve_forever()


if __name__ == "__main__":
    main()
