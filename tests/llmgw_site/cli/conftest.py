"""What tests of the command line share: a server that answers what it is told to, and the command as a person types it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from llmgw_site.cli.main import main
from tests.rows import a_token, a_user


class Server(ThreadingHTTPServer):
    """Answers what a test has put into `answers`, by method and path."""

    answers: dict[str, tuple[int, Any]]
    seen: list[tuple[str, str | None, bytes]]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append((f"{self.command} {self.path}", self.headers.get("authorization"), body))
        status, value = self.server.answers[f"{self.command} {self.path}"]
        text = b"" if value is None else (value if isinstance(value, bytes) else json.dumps(value).encode())
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server(("127.0.0.1", 0), Handler) as it:
        it.answers, it.seen = {}, []
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Llmgw = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Llmgw:
    """`llmgw` with these words, in this process."""

    def run(*words: str) -> Done:
        monkeypatch.setattr("sys.argv", ["llmgw", *words])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


@pytest.fixture
def llmgw(live_server: Any, command: Llmgw, monkeypatch: pytest.MonkeyPatch) -> Llmgw:
    """The command as root, on a server that runs in a thread of this process."""
    monkeypatch.setenv("LLMGW_URL", live_server.url)
    monkeypatch.setenv("LLMGW_ADMIN_TOKEN", a_token(a_user("root", superuser=True), "cli"))
    return command
