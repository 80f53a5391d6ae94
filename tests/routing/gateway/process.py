"""A gateway as a process of its own: started, ready, killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.processes import free_port
from tests.routing.gateway.scripted import connected

PROGRAM = "from llmgw_site.lib.config import load; from routing.gateway.serve import main; main(load())"
NAMES = ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")


def free_ports(count: int) -> list[int]:
    return [free_port() for _ in range(count)]


class Process:
    """A gateway process with its own data folder and ports; `log`: file for what it says, instead of `stderr`."""

    def __init__(self, data: Path, *, log: Path | None = None) -> None:
        self.client, self.node, self.metrics = self.ports = free_ports(3)
        self.environ = os.environ | {"LLMGW_DATA": str(data)}
        self.environ |= {name: str(port) for name, port in zip(NAMES, self.ports, strict=True)}
        self.log = log
        self.child: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        with ExitStack() as opened:
            to = subprocess.PIPE if self.log is None else opened.enter_context(self.log.open("a"))
            self.child = subprocess.Popen([sys.executable, "-c", PROGRAM], env=self.environ, stderr=to, text=True)
        return self.child

    def stderr(self) -> str:
        if self.log is not None:
            return self.log.read_text()
        assert self.child is not None
        assert self.child.stderr is not None
        return self.child.stderr.read()

    def end(self) -> None:
        """Kill it, if it runs."""
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            if self.child.stderr is not None:
                self.child.stderr.close()


async def answers(port: int, path: bytes) -> int:
    """Status of a GET, 0 while nobody listens."""
    try:
        async with connected(port) as client:
            await client.send(b"GET %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n" % path)
            return (await client.response())[0]
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0


async def ready(process: Process) -> None:
    async with asyncio.timeout(60):
        while await answers(process.metrics, b"/metrics") == 0:
            assert process.child is not None
            assert process.child.poll() is None, process.stderr()
            await asyncio.sleep(0.05)
