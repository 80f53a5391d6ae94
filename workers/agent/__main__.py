"""`llmgw agent`, `python -m workers.agent`: one agent per data folder, until SIGTERM. Its engines outlive it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import signal
import sys
import time
from pathlib import Path

import httpx

from llmgw_site.lib import logs
from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.files import private_folder
from workers.agent.link import Identity, Link, NoIdentity
from workers.agent.loop import Agent
from workers.agent.reporting import Reporter

log = logging.getLogger("workers.agent")


class Held(Exception):
    """Another agent works on this data folder."""


def take_lock(path: Path) -> int:
    """Hold the data folder until the process ends, however it ends. Raises Held with the other's pid."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        other = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise Held(
            f"another agent (pid {other}) works on {path.parent.parent}: stop it, or set LLMGW_DATA to another folder"
        ) from None
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


async def run(config: Config, identity: Identity) -> None:
    """Work until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    agent = Agent(config)
    boot_id = secrets.token_hex(8)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        link = Link(config.controller_urls, identity, boot_id=boot_id, clock=time.time, client=client)
        reporter = Reporter(config, agent, link, node_id=identity.node_id, boot_id=boot_id)
        await agent.start()
        agent.background(reporter.run_readings, reporter.run_heartbeats, reporter.run_snapshots, reporter.run_usage)
        logs.event(log, "agent_started", node_id=identity.node_id, controllers=list(config.controller_urls))
        await stopped.wait()
        await agent.stop()
    logs.event(log, "agent_stopped", engines_left=len(agent.machine.engines()))


def main(config: Config) -> None:
    """Run the agent of this node. Exits with a sentence when it cannot."""
    logs.setup(process="agent", level=config.log_level, style=config.log_style)
    private_folder(config.data)
    try:
        lock = take_lock(private_folder(config.run) / "agent.lock")
        identity = Identity.read(config.node_file)
    except (Held, NoIdentity) as problem:
        sys.exit(f"llmgw agent: {problem}")
    try:
        asyncio.run(run(config, identity))
    finally:
        os.close(lock)


if __name__ == "__main__":
    try:
        main(load())
    except ConfigError as error:
        sys.exit("llmgw agent: " + "\n".join(error.problems))
