"""Turns the machine's instructions into work and the work's results into events. Holds no rule of its own.

One asyncio loop; the machine is called from it only. What blocks (spawning, fsync, hardware) runs in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import httpx

from catalog.mirror.store import Store
from cluster.wire import Load
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.files import private_folder
from llmgw_site.lib.logs import event as log_event
from workers.agent import enginelog, engines_file, process
from workers.agent.engines.base import Engine, Target
from workers.agent.engines.registry import ENGINES
from workers.agent.events import (
    Adopted,
    Event,
    Exited,
    Forget,
    GatewayGone,
    Instruction,
    LoadReported,
    Probe,
    Probed,
    Remember,
    ReportNow,
    Signal,
    Spawn,
    Spawned,
    Tick,
    Verdict,
    WantedArrived,
    WeightsSeen,
    WriteEngines,
)
from workers.agent.launch import Starter, StartRefused
from workers.agent.load_socket import LoadSocket
from workers.agent.machine import Machine
from workers.agent.state import Phase, Rules
from workers.agent.store import IntentStore, WantedStore

log = logging.getLogger(__name__)
BUSY_TICK, IDLE_TICK, TRIM_EVERY, STOP_TIMEOUT = 0.1, 1.0, 2.0, 5.0
HANDOVER = 3.0
"""Seconds: a nudge, a heartbeat and a snapshot reach every router in less."""


class Agent:
    """The engines of one node. `report_now` is set when the controllers should hear at once."""

    def __init__(self, config: Config, *, rules: Rules | None = None, engines: dict[str, Engine] | None = None) -> None:
        self.config = config
        self.engines = dict(ENGINES) if engines is None else engines
        default = Rules(
            start_timeout=config.engine_start_timeout,
            drain_timeout=config.drain_timeout,
            handover=HANDOVER,
            deep_every=config.engine_probe_after,
            deep_patience=config.engine_probe_patience,
        )
        self.machine = Machine(rules or default)
        self.report_now = asyncio.Event()
        private_folder(config.data)
        for folder in (config.run, config.engines_file.parent, config.node_file.parent, config.usage):
            private_folder(folder)
        self.intents = IntentStore(config.node_file.parent / "engines-intent.json")
        self.wanted = WantedStore(config.wanted_file)
        self.store = Store(config.store, limit=config.store_limit)
        self.starter = Starter(config, self.engines, self.intents, self.store)
        self._children: dict[tuple[str, int], process.Child] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[asyncio.Task[tuple[process.Child, int]]] = set()
        self._busy = asyncio.Event()
        self._socket = LoadSocket(config.agent_socket, heard=self._heard, gone=self._gateway_gone)
        self.gateway_problems: tuple[str, ...] = ()
        """As the gateway says them, for people."""
        self._client = httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=4))
        self._started = False
        self._engines_stale = False
        self._engines_mark = files.mark(config.engines_file)
        # Wall time at the start, then monotonic: a step of the machine's clock must not end a start or stretch a pause.
        self._epoch = time.time() - time.monotonic()

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Adopt what runs, want again what was wanted last, listen to the gateway."""
        self._adopt()
        whole = await asyncio.to_thread(self.store.versions)
        self.handle(WeightsSeen(whole=frozenset(item.manifest.id for item in whole if item.whole)))
        last = self.wanted.read()
        if last is not None:
            self.handle(WantedArrived(replicas=last.replicas))
        self._started = True
        with self._disk("engines_not_written"):  # tried again with each tick
            self._write_engines()
        await self._socket.start()
        self._run(self._ticks())
        self._run(self._trims())

    async def stop(self) -> None:
        """Let go of everything; engines run on."""
        await self._socket.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=STOP_TIMEOUT)
        if self._starting:  # else an engine could appear after whoever stops us has counted them
            await asyncio.wait(set(self._starting), timeout=STOP_TIMEOUT)
        for child in self._children.values():
            asyncio.get_running_loop().remove_reader(child.pidfd)
            child.forget()
        self._children.clear()
        await self._client.aclose()

    def _adopt(self) -> None:
        """Take over the engines of an earlier agent; end those that no intent explains."""
        adopted: set[str] = set()
        for found in process.find(self.config.data):
            intent = self.intents.get(found.replica_id)
            known = intent is not None and (intent.start_time in (None, found.start_time))
            try:
                child = process.Child(found.pid, found.start_time)
            except ProcessLookupError:
                continue
            if intent is None or not known or found.replica_id in adopted:
                log_event(log, "stray_engine_ended", level=logging.WARNING, pid=found.pid, replica_id=found.replica_id)
                child.send(signal.SIGKILL)
                child.reap()
                continue
            adopted.add(found.replica_id)
            with self._disk("intent_not_kept"):
                self.intents.change(found.replica_id, pid=found.pid, start_time=found.start_time)
            log_event(log, "engine_adopted", replica_id=found.replica_id, pid=found.pid, generation=intent.generation)
            self.handle(
                Adopted(
                    replica_id=intent.replica_id, generation=intent.generation, serve=intent.serve, pid=found.pid,
                    port=intent.port, key=intent.key, started_at=intent.started_at, ready_at=intent.ready_at,
                    context=intent.context, slots=intent.slots, loras=intent.loras,
                )
            )  # fmt: skip
            adopted_process = self.machine.replicas[intent.replica_id].process
            if adopted_process is not None:
                self._watch(intent.replica_id, adopted_process.launch, child)
        with self._disk("intents_not_dropped"):
            self.intents.keep_only(adopted)

    @contextlib.contextmanager
    def _disk(self, problem: str) -> Iterator[None]:
        """A write that helps the next agent only: a full disk must not stop this one."""
        try:
            yield
        except OSError as error:
            log_event(log, problem, level=logging.ERROR, reason=str(error))

    # --- events in, instructions out ------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        for instruction in self.machine.handle(event, self._epoch + time.monotonic()):
            try:
                self._perform(instruction)
            except OSError as error:  # a full disk, for one: what can be done without it is done
                log_event(
                    log,
                    "instruction_failed",
                    level=logging.ERROR,
                    instruction=repr(instruction)[:200],
                    reason=str(error),
                )
        if not self._idle():
            self._busy.set()

    def _perform(self, instruction: Instruction) -> None:
        match instruction:
            case Spawn():
                self._say("engine_start", instruction, generation=instruction.generation, model=instruction.serve.model)
                self._run(self._spawn(instruction))
            case Signal():
                self._say("engine_signal", instruction, signal="KILL" if instruction.kill else "TERM")
                child = self._children.get((instruction.replica_id, instruction.launch))
                if child is not None:
                    child.send(signal.SIGKILL if instruction.kill else signal.SIGTERM)
            case Probe():
                self._run(self._look(instruction))
            case Remember():
                self._say("engine_ready", instruction, context=instruction.context, slots=instruction.slots)
                self.intents.change(
                    instruction.replica_id,
                    ready_at=instruction.ready_at,
                    context=instruction.context,
                    loras=instruction.loras,
                    slots=instruction.slots,
                )
            case Forget():
                self._say("replica_forgotten", instruction)
                self.intents.drop(instruction.replica_id)
                self.starter.log_path(instruction.replica_id).unlink(missing_ok=True)
            case WriteEngines():
                self._write_engines()
            case ReportNow():
                self.report_now.set()

    def _say(self, name: str, instruction: Any, **fields: Any) -> None:
        log_event(log, name, replica_id=instruction.replica_id, cause=instruction.cause, **fields)

    def _write_engines(self) -> None:
        if not self._started:
            return  # until everything is adopted the file of the former agent is the better one
        self._engines_stale = True
        self._engines_mark = engines_file.write(
            self.config.engines_file,
            engines=self.machine.engines(),
            starting=self.machine.starting(),
            written_at=time.time(),
        )
        self._engines_stale = False

    def _heard(self, load: Load) -> None:
        self.handle(LoadReported(replicas=load.replicas, suspects=load.suspects))
        if load.problems != self.gateway_problems:
            self.gateway_problems = load.problems
            self.report_now.set()

    def _gateway_gone(self) -> None:
        self.gateway_problems = ()
        self.handle(GatewayGone())

    # --- work -----------------------------------------------------------------------------------------------------

    async def _spawn(self, order: Spawn) -> None:
        key = secrets.token_urlsafe(32)
        try:
            starting = asyncio.ensure_future(asyncio.to_thread(self.starter.start, order, key))
            self._starting.add(starting)
            starting.add_done_callback(self._starting.discard)
            child, port = await asyncio.shield(starting)  # a thread goes on when its task is cancelled: stop() waits
        except StartRefused as refused:
            log_event(log, "engine_not_started", replica_id=order.replica_id, code=refused.failure.code)
            self.handle(refused.failure)
            return
        self._watch(order.replica_id, order.launch, child)
        self.handle(Spawned(replica_id=order.replica_id, launch=order.launch, pid=child.pid, port=port, key=key))

    def _watch(self, replica_id: str, launch: int, child: process.Child) -> None:
        self._children[replica_id, launch] = child
        asyncio.get_running_loop().add_reader(child.pidfd, self._gone, replica_id, launch)

    def _gone(self, replica_id: str, launch: int) -> None:
        child = self._children.pop((replica_id, launch))
        asyncio.get_running_loop().remove_reader(child.pidfd)
        status = child.reap()
        with self._disk("intent_not_dropped"):  # whatever the disk says, the machine must hear of the end
            self.intents.drop(replica_id)
        log_event(log, "engine_gone", replica_id=replica_id, pid=child.pid, status=status)
        tail = enginelog.tail(self.starter.log_path(replica_id))
        self.handle(Exited(replica_id=replica_id, launch=launch, status=status, log_tail=tail))

    async def _look(self, order: Probe) -> None:
        replica = self.machine.replicas.get(order.replica_id)
        running = replica.process if replica else None
        if running is None or running.launch != order.launch or running.phase is Phase.SPAWNING:
            return
        engine = self.engines.get(running.serve.engine)
        if engine is None:
            return
        target = Target(port=running.port, serve=running.serve, key=running.key)
        try:
            look = await engine.look(self._client, target, deep=order.deep)
        except Exception as error:  # an adapter met an answer that nobody foresaw: the engine is no engine
            log_event(log, "engine_look_failed", level=logging.ERROR, replica_id=order.replica_id, reason=repr(error))
            self.handle(
                Probed(
                    replica_id=order.replica_id, launch=order.launch, deep=order.deep, verdict=Verdict.BROKEN,
                    message=f"the engine's answer cannot be read ({type(error).__name__})",
                )
            )  # fmt: skip
            return
        self.handle(
            Probed(
                replica_id=order.replica_id, launch=order.launch, deep=order.deep, verdict=look.verdict,
                message=look.message, context=look.context, slots=look.slots, in_flight=look.in_flight,
                loras=look.loras,
            )
        )  # fmt: skip

    # --- time -----------------------------------------------------------------------------------------------------

    def _idle(self) -> bool:
        replicas = self.machine.replicas.values()
        return all(r.process.phase is Phase.READY if r.process else r.at_rest for r in replicas)

    async def _ticks(self) -> None:
        while True:
            self._busy.clear()
            if self._idle():
                # not wait_for: in Python 3.11 it can swallow a cancellation that meets the event
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_TICK):
                        await self._busy.wait()
            else:
                await asyncio.sleep(BUSY_TICK)
            self.handle(Tick())
            if self._engines_stale or files.mark(self.config.engines_file) != self._engines_mark:
                with contextlib.suppress(OSError):  # said once, by handle()
                    self._write_engines()

    async def _trims(self) -> None:
        limit = self.config.engine_log_bytes
        while True:
            await asyncio.sleep(TRIM_EVERY)
            for replica_id, _ in list(self._children):
                if await asyncio.to_thread(enginelog.trim, self.starter.log_path(replica_id), limit=limit):
                    log_event(log, "engine_log_trimmed", replica_id=replica_id)

    def _run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("task_failed", exc_info=task.exception())

    def background(self, *works: Callable[[], Coroutine[Any, Any, None]]) -> list[asyncio.Task[None]]:
        """Run these beside the engines until `stop`."""
        return [self._run(work()) for work in works]
