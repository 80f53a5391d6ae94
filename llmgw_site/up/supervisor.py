"""The order of a start and of a stop, for a cluster that begins on this machine; `node.py` has that of a joined node.

Start: Valkey and gateway at once, bootstrap in a child, then web, worker and agent together, then the quickstart model.
From then on web and worker follow the node's controller module.
Stop, within 10 s: gateway, worker and agent (requests end, records are written), then the engines, then web and Valkey.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cluster.domain.modules import Module
from llmgw_site.cli import services
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_seconds
from llmgw_site.up import http, processes, quickstart, valkey
from llmgw_site.up.service import Service, StartFailed, bound_log, tail
from llmgw_site.up.terminal import Terminal
from workers.agent import modules, removed

BOOTSTRAP_PATIENCE = 300.0
"""Longest time the bootstrap may take: the migrations of a large database, not of a fresh one."""
LOOK_EVERY = 1.0
LOGS_EVERY = 10.0
MODULES_EVERY = 0.5
CONTROLLER = ("web", "worker")


class Supervisor:
    """All of llmgw on one machine, from `run` until a signal."""

    joined = False

    def __init__(self, config: Config, terminal: Terminal, *, keep_engines: bool) -> None:
        self._config = config
        self._terminal = terminal
        self._keep_engines = keep_engines
        self._environ = {
            **os.environ,
            "LLMGW_DATA": str(config.data),
            processes.SERVICE: str(config.data),
            "DJANGO_SETTINGS_MODULE": "llmgw_site.settings",
            "PYTHONUNBUFFERED": "1",
        }
        self._services: dict[str, Service] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._stop = asyncio.Event()
        self._signals = 0

    async def run(self) -> int:
        """The exit status of `llmgw up`: 0 after Ctrl-C or SIGTERM, 1 if it could not start."""
        loop = asyncio.get_running_loop()
        modules.start(self._config, joined=self.joined)
        for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(sign, self._signalled)
        work: asyncio.Task[Any] = asyncio.create_task(self._start())
        stop: asyncio.Task[Any] = asyncio.create_task(self._stop.wait())
        logs = asyncio.create_task(self._bound_logs())
        failed = ""
        try:
            while not stop.done() and not failed:
                going = [task for task in (work, stop, *self._tasks) if not task.done()]
                await asyncio.wait(going, timeout=LOOK_EVERY, return_when=asyncio.FIRST_COMPLETED)  # more may begin
                failed = self._failure(work)
        finally:
            work.cancel()
            logs.cancel()
            stop.cancel()
            await self._end()
        if failed:
            self._terminal.say(failed)
        return 1 if failed else 0

    def _failure(self, work: asyncio.Task[Any]) -> str:
        """Why the start failed, if it did."""
        for task in [work, *self._tasks]:
            error = task.exception() if task.done() and not task.cancelled() else None
            if isinstance(error, (StartFailed, Refused)):
                return str(error)
            if error is not None:
                raise error
        return ""

    def _signalled(self) -> None:
        self._signals += 1
        self._stop.set()
        if self._signals == 2:
            self._terminal.say("killing everything")
            for service in self._services.values():
                service.kill()
            if not self._keep_engines:
                processes.end(processes.engines_of(self._config.data), patience=0)

    # --- start

    async def _start(self) -> None:
        config = self._config
        if not config.redis_url:
            self._run("valkey", valkey.command(config), lambda: valkey.answers(valkey.socket_path(config)))
        self._run_gateway()
        if config.node_file.exists() and not self._has(Module.CONTROLLER):
            self._run_agent()
            await self._until_ready("gateway", "agent")
            self._terminal.block(
                "llmgw runs. The controller module is switched off on this node. Ctrl-C stops everything."
            )
            return
        if "valkey" in self._services:  # the bootstrap's changes wake workers through it
            await self._services["valkey"].ready.wait()
        secrets = await self._bootstrap()
        self._run_controller()
        self._run_agent()
        await self._until_ready("gateway", "web")
        await self._announce(secrets)

    async def _until_ready(self, *names: str) -> None:
        """From then on web and worker follow the controller module."""
        for name in names:
            await self._services[name].ready.wait()
        self._tasks.append(asyncio.create_task(self._follow_modules(), name="modules"))

    def _has(self, module: Module) -> bool:
        decided = modules.held(self._config)
        return decided is not None and modules.running(decided, module)

    def _run_gateway(self) -> None:
        client = (quickstart.local_host(self._config), self._config.port)
        self._run("gateway", _python("gateway"), lambda: _ok(client, "/healthz"), lambda: _answers(client, "/healthz"))

    def _run_agent(self) -> None:
        config = self._config
        self._run("agent", _python("agent"), lambda: config.agent_socket.exists() and _connects(config))

    def _run_controller(self, *, needed: bool = True) -> None:
        """`needed` False: it may fail to start for ever; the rest of the node goes on."""
        web, path = self._config.web_socket, "/internal/healthz"
        self._run("web", _python("web"), lambda: _ok(web, path), lambda: _answers(web, path), needed=needed)
        self._run("worker", services.worker_command(self._config), self._worker_is_ready, needed=needed)

    async def _follow_modules(self) -> None:
        """Start and stop web and worker as the agent decides about the controller module. Raises Refused once this node is
        out of its cluster, and the agent has ended its engines and put its files aside: nothing is left to run."""
        while True:
            if gone := removed.said(self._config):
                raise Refused(Kind.CONFLICT, "node_removed", gone)
            decided = modules.held(self._config)
            wanted = decided is not None and modules.running(decided, Module.CONTROLLER)
            if wanted and "web" not in self._services:
                self._terminal.say("the controller module is switched on")
                self._run_controller(needed=False)
            elif decided is not None and not wanted and "web" in self._services:
                self._terminal.say("the controller module is switched off")
                await self._stop_all(*CONTROLLER, patience=5.0)
                for name in CONTROLLER:
                    del self._services[name]
            await asyncio.sleep(MODULES_EVERY)

    async def _announce(self, secrets: dict[str, str]) -> None:
        """Serve the quickstart model, ask it, say how to use all this. A model that cannot be served stops nothing.

        No model is served where no engine runs, and nothing is asked where no edge answers.
        """
        config = self._config if self._has(Module.INFERENCE) else replace(self._config, quickstart=False)
        guide = quickstart.Quickstart(config, secrets, self._terminal)
        answer = None
        try:
            if self._has(Module.EDGE):
                answer = await guide.until_answered()
        except Refused as error:
            self._terminal.say(f"{error.message}")
            self._terminal.block(
                f"llmgw runs, but its model does not. Console: {self._config.client_url}/ as {secrets['admin_user']} / "
                f"{secrets['admin_password']}; logs: {self._config.data / 'logs'}. Ctrl-C stops everything."
            )
            return
        for name in list(self._services):  # web and worker go where the controller module is switched off meanwhile
            while (service := self._services.get(name)) is not None and not service.ready.is_set():
                self._terminal.waiting(name)
                await asyncio.sleep(0.1)
        quickstart.write_env(config, secrets)
        self._terminal.block(quickstart.block(config, secrets, answer))

    def _run(
        self,
        name: str,
        command: list[str],
        ready: Callable[[], bool],
        well: Callable[[], bool] | None = None,
        *,
        needed: bool = True,
    ) -> None:
        service = Service(
            name,
            command,
            ready=ready,
            well=well,
            log=self._config.data / "logs" / f"{name}.log",
            environ=self._environ,
            say=self._terminal.say,
            needed=needed,
        )
        self._services[name] = service
        self._tasks.append(asyncio.create_task(service.run(), name=name))

    async def _bootstrap(self) -> dict[str, str]:
        """Migrations, identity, first rows and secrets, made by a child of its own."""
        log = self._config.data / "logs" / "bootstrap.log"
        bound_log(log)
        began = time.monotonic()
        with log.open("ab") as out:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "llmgw_site.up.tether", str(os.getpid()),
                sys.executable, "-P", "-m", "django", "llmgw_bootstrap",
                stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out,
                env=self._environ, start_new_session=True,
            )  # fmt: skip
        try:
            while child.returncode is None:
                self._terminal.waiting("database, identity and first keys")
                try:
                    async with asyncio.timeout(0.5):
                        await child.wait()
                except TimeoutError:
                    if time.monotonic() - began > BOOTSTRAP_PATIENCE:
                        break
        finally:
            if child.returncode is None:
                child.kill()
        if child.returncode != 0:
            raise StartFailed(f"the bootstrap failed. The end of {log}:\n{tail(log)}")
        self._terminal.say(f"database, identity and keys ready in {format_seconds(time.monotonic() - began)}")
        kept = files.read_json(quickstart.secrets_path(self._config))
        if not isinstance(kept, dict):
            raise Refused(Kind.INTERNAL, "bootstrap_failed", f"the bootstrap left no secrets; see {log}")
        return {name: str(value) for name, value in kept.items()}

    def _worker_is_ready(self) -> bool:
        """Whether the worker that runs now has said so (worker_ready.py)."""
        worker = self._services.get("worker")
        try:
            return worker is not None and (self._config.run / "worker.ready").read_text() == str(worker.pid)
        except OSError:
            return False

    async def _bound_logs(self) -> None:
        while True:
            await asyncio.sleep(LOGS_EVERY)
            for name in list(self._services):
                with suppress(OSError):  # tried again with the next look
                    bound_log(self._config.data / "logs" / f"{name}.log")

    # --- stop

    async def _end(self) -> None:
        began = time.monotonic()
        quickstart.env_path(self._config).unlink(missing_ok=True)
        if self._services:
            self._terminal.say("stopping (Ctrl-C again kills)")
        await self._stop_all("gateway", "worker", "agent", patience=5.0)
        engines = processes.engines_of(self._config.data)
        if engines and self._keep_engines:
            self._terminal.say(f"engines go on, as asked: {', '.join(map(str, engines))}")
        elif engines:
            await asyncio.to_thread(processes.end, engines, patience=1.5)
            self._terminal.say(f"engines ended: {len(engines)}")
        await self._stop_all("web", "valkey", patience=2.0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._services:
            self._terminal.say(f"stopped in {format_seconds(time.monotonic() - began)}")

    async def _stop_all(self, *names: str, patience: float) -> None:
        wanted = [self._services[name].stop(patience) for name in names if name in self._services]
        await asyncio.gather(*wanted)


def _python(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", "llmgw_site.cli.services", name]


def _ok(where: Any, path: str) -> bool:
    try:
        return http.call(where, "GET", path, timeout=2.0).status == 200
    except http.NoAnswer:
        return False


def _answers(where: Any, path: str) -> bool:
    """Whether it answers at all, and be it that its database is away: a new start would not mend that."""
    try:
        http.call(where, "GET", path, timeout=4.0)
    except http.NoAnswer:
        return False
    return True


def _connects(config: Config) -> bool:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        return link.connect_ex(str(config.agent_socket)) == 0
