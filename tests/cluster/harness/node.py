"""One node of the harness: a data folder, a loopback address of its own, and its processes, started by the real commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from llmgw_site.lib.config import load
from llmgw_site.up import http
from tests import processes
from tests.cluster.harness.links import Link
from tests.processes import alive, fair, wait_for
from workers.agent import modules

CLIENT_PORT, NODE_PORT, METRICS_PORT = 8800, 8880, 8890
LLMGW = [sys.executable, "-c", "from llmgw_site.cli.main import main; main()"]
"""The command `llmgw` of this environment."""
CONTROLLER = ("gateway", "web", "worker", "agent")
PLAIN = ("gateway", "agent")


def environment(**more: str) -> dict[str, str]:
    """The tests' environment without what would configure llmgw, and `more`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_") or k == "LLMGW_TEST_RUN"}
    kept.pop("DATABASE_URL", None)
    return {**kept, "DJANGO_SETTINGS_MODULE": "llmgw_site.settings", "PYTHONUNBUFFERED": "1", **more}


class Node:
    """`link` is the way that the other nodes take to it; `services` are the processes it has when it is whole."""

    def __init__(
        self, name: str, folder: Path, host: str, link: Link, *, services: tuple[str, ...], environ: Mapping[str, str]
    ) -> None:
        self.name, self.data, self.host, self.link, self.services = name, folder, host, link, services
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.environ = environment(
            LLMGW_DATA=str(folder),
            LLMGW_NODE_NAME=name,
            LLMGW_HOST=host,
            LLMGW_NODE_HOST=host,
            LLMGW_METRICS_HOST=host,
            LLMGW_PORT=str(CLIENT_PORT),
            LLMGW_NODE_PORT=str(NODE_PORT),
            LLMGW_METRICS_PORT=str(METRICS_PORT),
            LLMGW_NODE_ADDRESS=link.url,
            **environ,
        )
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: set[str] = set()

    def __repr__(self) -> str:
        return f"<{self.name} {self.data}>"

    # --- processes

    def run(self, *args: str, seconds: float = 60, **environ: str) -> subprocess.CompletedProcess[str]:
        """A command in this node's environment, to its end. Output and errors are together in `stdout`."""
        return subprocess.run(
            args, env={**self.environ, **environ}, text=True, timeout=fair(seconds), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def spawn(self, *names: str) -> None:
        """Start these services (none: all that are missing) and do not wait."""
        for name in names or self.missing():
            log = self.log_path(name)
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with log.open("ab") as out:
                self.children[name] = subprocess.Popen(
                    [sys.executable, "-m", "llmgw_site.cli.services", name],
                    env=self.environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                )  # fmt: skip

    def start(self, *names: str, seconds: float = 30) -> None:
        """Start these services (none: all that are missing) and wait until they serve."""
        names = names or self.missing()
        self.spawn(*names)
        self.until_ready(*names, seconds=seconds)

    def until_ready(self, *names: str, seconds: float = 30) -> None:
        for name in names or self.services:
            wait_for(
                lambda name=name: self.ready(name) or not self.runs(name),
                seconds=fair(seconds),
                what=f"{self.name}/{name}",
                every=0.05,
            )  # type: ignore[misc]
            assert self.runs(name), f"{self.name}/{name} ended:\n{self.tail(name)}"
        if "gateway" in names and self.link.mode == "refuse":
            self.link.set("open")

    def ready(self, name: str) -> bool:
        """Whether a service serves."""
        if name == "gateway":
            return _ok((self.host, CLIENT_PORT), "/healthz")
        if name == "web":
            return _ok(self.data / "run" / "web.sock", "/internal/healthz")
        if name == "worker":
            try:
                return (self.data / "run" / "worker.ready").read_text() == str(self.children[name].pid)
            except OSError:
                return False
        return _connects(self.data / "run" / "agent.sock")

    def runs(self, name: str) -> bool:
        child = self.children.get(name)
        return child is not None and child.poll() is None

    def missing(self) -> tuple[str, ...]:
        return tuple(name for name in self.services if not self.runs(name))

    def pid(self, name: str) -> int:
        return self.children[name].pid

    def kill(self, *names: str, sign: int = signal.SIGKILL) -> None:
        """End services (none: all). A gateway's end is seen by callers as on a network: the next connection is refused."""
        ending = []
        for name in names or self.services:
            child = self.children.get(name)
            if child is None or child.poll() is not None:
                continue
            if name == "gateway" and self.link.mode == "open":
                self.link.set("refuse", keep=sign != signal.SIGKILL)
            child.send_signal(sign)
            if name in self._frozen:
                self.thaw(name)
            ending.append(child)
        for child in ending:  # some need seconds for it, and need them at the same time
            child.wait(30)

    def freeze(self, *names: str) -> None:
        """SIGSTOP: it is there, holds its connections, and does nothing."""
        for name in names or self.services:
            self.children[name].send_signal(signal.SIGSTOP)
            self._frozen.add(name)

    def thaw(self, *names: str) -> None:
        for name in names or tuple(self._frozen):
            self._frozen.discard(name)
            if self.runs(name):
                self.children[name].send_signal(signal.SIGCONT)

    def restart(self, *names: str, **environ: str) -> None:
        """End and start services anew, with changed variables from now on; an empty one is taken away."""
        self.environ.update(environ)
        self.environ = {name: value for name, value in self.environ.items() if value or name not in environ}
        self.kill(*names, sign=signal.SIGTERM)
        self.start(*(names or self.services))

    def reboot(self) -> None:
        """The whole node ends and starts anew, as by `llmgw up`: modules that were stopped are forgotten."""
        self.kill(sign=signal.SIGTERM)
        modules.start(load(self.environ), joined=True)
        self.start()

    def skew(self, seconds: float) -> None:
        """Let the clock of its processes be ahead by so much (they must have been started with `skewed()`)."""
        (self.data / "skew").write_text(str(seconds))

    def skewed(self) -> dict[str, str]:
        """Variables with which `skew` works; see harness/skew/sitecustomize.py."""
        return {"PYTHONPATH": str(Path(__file__).with_name("skew")), "HARNESS_SKEW": str(self.data / "skew")}

    def engines(self, model: str = "") -> list[int]:
        """Pids of its engines; of one model only, if it is named."""
        pids = [
            pid
            for pid in processes.with_environ("LLMGW_AGENT_DATA", str(self.data))
            if _environ(pid, "LLMGW_REPLICA_ID")
        ]
        return [pid for pid in pids if not model or model.encode() in _read(pid, "cmdline").split(b"\0")]

    def pids(self) -> list[int]:
        return [child.pid for child in self.children.values() if child.poll() is None]

    def destroy(self) -> None:
        """Whatever became of it: no process of it is left."""
        for child in self.children.values():
            if child.poll() is None:
                child.kill()
                child.wait()
        gone = lambda: [pid for pid in processes.with_environ("LLMGW_AGENT_DATA", str(self.data)) if alive(pid)]  # noqa: E731
        for pid in gone():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: not gone(), what=f"the engines of {self.name} to go")

    # --- what it keeps and says

    @property
    def url(self) -> str:
        """Its client listener."""
        return f"http://{self.host}:{CLIENT_PORT}"

    @property
    def id(self) -> str:
        return str(self.file("node/identity.json")["node_id"])

    def file(self, path: str) -> Any:
        """A JSON file under its data folder; {} while it is not there."""
        try:
            return json.loads((self.data / path).read_text())
        except FileNotFoundError:
            return {}

    def log_path(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"

    def tail(self, name: str, lines: int = 30) -> str:
        path = self.log_path(name)
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:]) if path.exists() else "(no log)"

    def logged(self, name: str = "gateway") -> list[dict[str, Any]]:
        """The JSON lines of a service's log."""
        found = []
        for line in self.log_path(name).read_text(errors="replace").splitlines():
            if line.startswith("{"):
                found.append(json.loads(line))
        return found

    def metrics(self) -> str:
        return httpx.get(f"http://{self.host}:{METRICS_PORT}/metrics", trust_env=False, timeout=10).text


def _ok(where: Any, path: str) -> bool:
    try:
        return http.call(where, "GET", path, timeout=2.0).status == 200
    except http.NoAnswer:
        return False


def _connects(path: Path) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        return link.connect_ex(str(path)) == 0


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _environ(pid: int, name: str) -> bool:
    return b"\0" + name.encode() + b"=" in b"\0" + _read(pid, "environ")
