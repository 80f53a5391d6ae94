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
from collections.abc import Callable
from pathlib import Path

import httpx

from cluster.domain.modules import Module
from llmgw_site.lib import logs
from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.files import private_folder
from workers.agent import removed
from workers.agent.clients import Clients
from workers.agent.events import InferenceSwitched, WantedArrived
from workers.agent.identity import Identity, NoIdentity
from workers.agent.link import Link
from workers.agent.loop import Agent
from workers.agent.modules import Modules, held
from workers.agent.node_map import NodeMap
from workers.agent.nudges import Nudges
from workers.agent.renewal import Renewal
from workers.agent.reporting import Reporter
from workers.agent.sources import NodeCalls
from workers.agent.tls import Tls

log = logging.getLogger("workers.agent")
ASIDE_EVERY = 10.0
"""Seconds between two tries to put a removed node's files aside."""


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
    """Work until SIGTERM or SIGINT. A node that is removed from its cluster stops its engines and then does nothing."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    agent = Agent(config)
    last = agent.wanted.read()
    modules = Modules(config, joined=identity.joined, assigned=last.roles if last else None, before=held(config))
    agent.handle(InferenceSwitched(on=modules.runs(Module.INFERENCE)))
    node_map = NodeMap(config.map_file, time.time)
    boot_id = secrets.token_hex(8)
    async with httpx.AsyncClient(trust_env=False, follow_redirects=False) as client:
        tls = Tls(config.tls_folder)
        clients = Clients(client, tls)
        link = Link(config.controller_urls, identity, boot_id=boot_id, clock=even_clock(), clients=clients)
        link.offset = node_map.offset
        calls = NodeCalls(identity, node_map=node_map, tls=tls, now=lambda: link.cluster_time)
        reporter = Reporter(
            config,
            agent,
            link,
            node_id=identity.node_id,
            boot_id=boot_id,
            node_map=node_map,
            modules=modules,
            calls=calls,
        )
        reporter.fetching.order(last.fetches if last else ())
        renewal = Renewal(link, tls, removed=reporter.removed.set)
        await agent.start()
        talks = agent.background(
            reporter.readings.run, reporter.run_heartbeats, reporter.run_snapshots, reporter.run_watch, reporter.holdings.run,
            reporter.fetching.run, reporter.shipping.run, renewal.run, Nudges(link, reporter).run,
        )  # fmt: skip
        logs.event(log, "agent_started", node_id=identity.node_id, controllers=list(link.urls))
        removal = asyncio.ensure_future(_leave_when_removed(config, identity, agent, reporter, modules, talks))
        await stopped.wait()
        removal.cancel()
        await asyncio.wait([removal])
        await agent.stop()
        await clients.close()
    logs.event(log, "agent_stopped", engines_left=len(agent.machine.engines()))


async def _leave_when_removed(
    config: Config, identity: Identity, agent: Agent, reporter: Reporter, modules: Modules,
    talks: list[asyncio.Task[None]],
) -> None:  # fmt: skip
    """Once this node is out of the cluster: no word to anybody, no module, no engine, and its files are put aside."""
    await reporter.removed.wait()
    for talk in talks:
        talk.cancel()
    modules.assign(())
    agent.handle(WantedArrived(replicas=()))
    while agent.machine.replicas:  # noqa: ASYNC110 - no event tells; it happens once
        await asyncio.sleep(0.1)
    while True:
        try:
            aside = await asyncio.to_thread(removed.put_aside, config, node_id=identity.node_id)
            break
        except OSError as error:  # a full disk, for one: until it is done the supervisor waits for it
            logs.event(log, "files_not_put_aside", level=logging.ERROR, reason=str(error))
            await asyncio.sleep(ASIDE_EVERY)
    logs.event(log, "node_left", level=logging.ERROR, node_id=identity.node_id, files=str(aside))


def even_clock() -> Callable[[], float]:
    """Unix time now, carried on by a clock that nobody sets and that goes on while the machine sleeps: clock_gettime(2)."""
    began = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return lambda: began + time.clock_gettime(time.CLOCK_BOOTTIME)


def main(config: Config) -> None:
    """Run the agent of this node. Exits with a sentence when it cannot."""
    logs.setup(process="agent", level=config.log_level, style=config.log_style)
    private_folder(config.data)
    try:
        lock = take_lock(private_folder(config.run) / "agent.lock")
        identity = Identity.read(config.node_file)
    except (Held, NoIdentity) as problem:
        sys.exit(f"llmgw agent: {removed.said(config) or problem}")
    try:
        asyncio.run(run(config, identity))
    finally:
        os.close(lock)


if __name__ == "__main__":
    try:
        main(load())
    except ConfigError as error:
        sys.exit("llmgw agent: " + "\n".join(error.problems))
