"""The whole of llmgw for end-to-end tests: a real `llmgw up` on a folder and ports of its own, serving a tiny real model.

`stack` is shared by the tests of a folder, whose conftest imports the fixtures, and must be whole again when a test ends;
it ends with the last of them. `fresh_stack` is a test's own, not started yet. Every test of them is `slow` and `live`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from llmgw_site.cli.client import Api, Target, read_env_file
from tests import processes, tiny
from tests.processes import fair, wait_for

MODEL = "tiny"
SERVICES = ("valkey", "gateway", "web", "worker", "agent")
_COMMANDS = {
    "valkey": b"valkey-server",
    "gateway": b"services\0gateway",
    "web": b"services\0web",
    "agent": b"services\0agent",
    "worker": b"-m\0workers\0",
}


class Stack:
    """`llmgw up` on one data folder. Start it, use it, break it, start it again."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.data = folder
        self.port, self.node_port, self.metrics_port = (processes.free_port() for _ in range(3))
        self.log = folder.with_name(folder.name + ".log")
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_") or k == "LLMGW_TEST_RUN"}
        self.environ = {
            **kept,
            "LLMGW_DATA": str(folder),
            "LLMGW_PORT": str(self.port),
            "LLMGW_NODE_PORT": str(self.node_port),
            "LLMGW_METRICS_PORT": str(self.metrics_port),
            "LLMGW_QUICKSTART_MODEL": MODEL,
            "LLMGW_QUICKSTART_WEIGHTS": str(tiny.tiny_gguf()),
            "LLMGW_THREADS": "1",
            **environ,
        }
        self.environ.pop("DJANGO_SETTINGS_MODULE", None)
        self.process: subprocess.Popen[bytes] | None = None
        self.left_whole = False
        """Whether the test before found it whole at its end: then nothing has happened to it since."""

    # --- the supervisor

    def spawn(self, *args: str) -> subprocess.Popen[bytes]:
        """Start `llmgw up` and do not wait."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "llmgw_site.up.main", *args],
                env=self.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        return self.process

    def start(self, *args: str, seconds: float = 60) -> None:
        """Start `llmgw up` and wait until it says that a chat was answered."""
        process = self.spawn(*args)
        wait_for(
            lambda: self.env_file.exists() or process.poll() is not None,
            seconds=fair(seconds),
            what=f"up: {self.tail()}",
        )
        assert process.poll() is None, f"up ended with {process.returncode}:\n{self.tail()}"

    def stop(self, sign: int = signal.SIGTERM, patience: float = 60) -> int:
        """End it as an operator would; its exit status."""
        assert self.process is not None
        processes.stop(self.process, end=sign, patience=fair(patience))
        return self.process.returncode

    def destroy(self) -> None:
        """Whatever became of it: no process and no file is left."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        for pid in [*self.pids(), *self.engines()]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: not self.pids() and not self.engines(), what="killed processes to go")
        shutil.rmtree(self.data, ignore_errors=True)
        self.log.unlink(missing_ok=True)

    @property
    def env_file(self) -> Path:
        return self.data / "quickstart.env"

    def tail(self, lines: int = 40) -> str:
        """The end of what it printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    # --- its processes

    def pids(self) -> list[int]:
        """Every process under the supervisor, engines not counted."""
        engines = set(self.engines())
        return [pid for pid in processes.with_environ("LLMGW_UP", str(self.data)) if pid not in engines]

    def engines(self, model: str = "") -> list[int]:
        """Pids of the engines of this node; of one model only, if it is named."""
        pids = [pid for pid in processes.with_environ("LLMGW_AGENT_DATA", str(self.data)) if _is_engine(pid)]
        return [pid for pid in pids if not model or model.encode() in _cmdline(pid).split(b"\0")]

    def pid(self, service: str) -> int | None:
        """The service's own process (the oldest that fits), if it runs."""
        return processes.oldest(pid for pid in self.pids() if _COMMANDS[service] in _cmdline(pid))

    def services(self) -> set[str]:
        """Names of the services that run: one look at all processes."""
        commands = [_cmdline(pid) for pid in self.pids()]
        return {name for name, mark in _COMMANDS.items() if any(mark in command for command in commands)}

    def kill(self, service: str, sign: int = signal.SIGKILL) -> int:
        """Kill a service; the pid it had."""
        pid = wait_for(lambda: self.pid(service), what=f"{service} to run")
        assert pid is not None
        os.kill(pid, sign)
        wait_for(lambda: not processes.alive(pid), what=f"{service} to be gone")
        return pid

    # --- its users

    @property
    def quickstart(self) -> Mapping[str, str]:
        """What quickstart.env says."""
        return read_env_file(self.env_file)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def openai(self, key: str | None = None, **options: Any) -> openai.OpenAI:
        """The `openai` package as a client, without its own second tries."""
        return openai.OpenAI(
            base_url=f"{self.url}/v1", api_key=key or self.quickstart["LLMGW_API_KEY"], **{"max_retries": 0, **options}
        )

    def api(self) -> Api:
        """The admin API as the quickstart's administrator."""
        return Api(Target(self.url, self.quickstart["LLMGW_ADMIN_TOKEN"], "quickstart.env"))

    def chat(
        self, text: str = "Hi.", *, model: str = MODEL, key: str | None = None, timeout: float = 30, **more: Any
    ) -> httpx.Response:
        """One chat request, as it is answered."""
        return httpx.post(
            f"{self.url}/v1/chat/completions",
            headers={"authorization": f"Bearer {key or self.quickstart['LLMGW_API_KEY']}"},
            json={"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0, **more},
            timeout=timeout,
            trust_env=False,
            verify=False,  # no TLS in it: certificates need not be read for each call
        )  # fmt: skip

    def run_job(self, name: str, path: Path, *, seconds: float = 60, **args: Any) -> dict[str, Any]:
        """Open a job "serve" and follow it to its end."""
        job = self.api().post("jobs", {"kind": "serve", "args": {"name": name, "path": str(path), **args}})
        ended = wait_for(
            lambda: (now := self.api().get(f"jobs/{job['id']}"))["state"] not in ("queued", "running") and now,
            seconds=fair(seconds), what=f"job {job['id']} to end", every=0.1,
        )  # fmt: skip
        return dict(ended or {})

    def serve(self, name: str, path: Path, **args: Any) -> None:
        """Have a further model served, and wait until it is."""
        job = self.run_job(name, path, **args)
        assert job["state"] == "done", job

    def remove_model(self, name: str) -> None:
        """Out of the catalogue; its engine ends."""
        api = self.api()
        row = api.find("models", name, noun="model")
        if row.get("enabled"):
            api.post(f"models/{row['id']}/disable")
        api.delete(f"models/{row['id']}")

    def answers(self, model: str = MODEL) -> bool:
        """Whether a chat is answered now."""
        try:
            return self.chat(model=model, max_tokens=4).status_code == 200
        except httpx.HTTPError:
            return False

    def whole(self) -> bool:
        """Whether every service runs and a chat is answered."""
        return self.services() == set(SERVICES) and self.answers()


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_engine(pid: int) -> bool:
    try:
        return b"\0LLMGW_REPLICA_ID=" in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


@pytest.fixture
def fresh_stack() -> Iterator[Stack]:
    """A stack of this test alone, not started."""
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))  # short: unix sockets lie below it
    stack = Stack(folder / "d")
    try:
        yield stack
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def shared_stack() -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))
    stack = Stack(folder / "d")
    try:
        stack.start()
        yield stack
        assert stack.stop() == 0, stack.tail()
        assert stack.pids() == []
        assert stack.engines() == []
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stack(shared_stack: Stack) -> Iterator[Stack]:
    """The folder's stack, whole before the test and after it."""
    if not shared_stack.left_whole:
        wait_for(shared_stack.whole, seconds=fair(60), what=f"the stack to be whole: {shared_stack.tail()}", every=0.2)
    shared_stack.left_whole = False
    yield shared_stack
    wait_for(
        shared_stack.whole, seconds=fair(60), what=f"the stack to be whole again: {shared_stack.tail()}", every=0.2
    )
    shared_stack.left_whole = True


@pytest.fixture(scope="package")
def more_models(shared_stack: Stack) -> Iterator[None]:
    """One that asks a tool whatever it is told, one that embeds, one that ranks; gone afterwards."""
    shared_stack.serve("tiny-tools", tiny.tiny_gguf(name="tiny-tools", text=tiny.TOOL_CALL, tools=True))
    shared_stack.serve("tiny-embed", tiny.tiny_gguf(name="tiny-embed", pooling="mean"))
    shared_stack.serve("tiny-rank", tiny.tiny_gguf(name="tiny-rank", pooling="rank"))
    yield
    for name in ("tiny-tools", "tiny-embed", "tiny-rank"):
        shared_stack.remove_model(name)
