"""All decisions of the agent, without I/O: `handle(event, now)` in, instructions out. One owner, no locks.

A replica here is a wanted replica, or one whose engine still runs. It has at most one process, whose life is

    SPAWNING -> STARTING -> READY -> DRAINING -> ENDING -> gone
                   |          |                    ^
                   +----------+--------------------+        (a start that failed, a change, an engine gone silent)

and any of them -> gone, when the process dies. The controllers' silence changes nothing: what was wanted last is wanted.
`now` is Unix time. The numbers in `_decide` are the cases in its docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cluster.wire import LocalEngine, ReplicaLoad, ReplicaReport, Serve, StartingReplica, WantedReplica
from workers.agent import proof, views
from workers.agent.cause import death
from workers.agent.events import (
    Adopted,
    Event,
    Exited,
    Forget,
    GatewayGone,
    InferenceSwitched,
    Instruction,
    LoadReported,
    Probe,
    Probed,
    Remember,
    ReportNow,
    Signal,
    Spawn,
    Spawned,
    SpawnFailed,
    Tick,
    Verdict,
    WantedArrived,
    WeightsSeen,
    WriteEngines,
)
from workers.agent.state import Phase, Process, Replica, Rules, versions

HELD = ("waiting_for_parts", "It has all that it takes, and waits until the nodes of its other parts have, too.")
"""Code and message of a part of a replica over several nodes."""


class Machine:
    """See the module. `replicas` may be read by anyone, changed by nobody else."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.replicas: dict[str, Replica] = {}
        self.wanted_known = False
        self.inference = True
        self._told: tuple[WantedReplica, ...] = ()
        self._weights = WeightsSeen(whole=frozenset())
        self.gateway_connected = False
        self.gateway_left_at = 0.0
        self._launch = 0
        self._out: list[Instruction] = []
        self._handlers: dict[type[Event], Callable[..., None]] = {
            WantedArrived: self._handle_wanted,
            InferenceSwitched: self._handle_inference,
            Adopted: self._handle_adopted,
            Spawned: self._handle_spawned,
            SpawnFailed: self._handle_spawn_failed,
            Exited: self._handle_exited,
            Probed: self._handle_probed,
            LoadReported: self._handle_load,
            GatewayGone: self._handle_gateway_gone,
            WeightsSeen: self._handle_weights,
            Tick: lambda event, now: None,
        }

    def handle(self, event: Event, now: float) -> tuple[Instruction, ...]:
        """Take in one event, decide anew for every replica, say what to do."""
        before = self.engines(), self.starting(), self._reported()
        self._handlers[type(event)](event, now)
        for replica in list(self.replicas.values()):
            self._decide(replica, now)
        cause = type(event).__name__
        after = self.engines(), self.starting(), self._reported()
        if after[:2] != before[:2]:
            self._out.append(WriteEngines(cause=cause))
        if after[1:] != before[1:]:
            self._out.append(ReportNow(cause=cause))
        out, self._out = tuple(self._out), []
        return out

    def engines(self) -> tuple[LocalEngine, ...]:
        return views.engines(self.replicas.values())

    def starting(self) -> tuple[StartingReplica, ...]:
        return views.starting(self.replicas.values(), self.rules)

    def used(self) -> frozenset[str]:
        """Versions of weights that must stay."""
        return views.used(tuple(self.replicas.values()))  # a thread may ask

    def reports(self) -> tuple[ReplicaReport, ...]:
        return views.reports(self.replicas.values(), self.rules)

    def _reported(self) -> tuple[object, ...]:
        """What the controllers should hear of at once; load figures can wait for the next heartbeat."""
        return tuple((r.replica_id, r.generation, r.state, r.code, r.pid) for r in self.reports())

    # --- events ---------------------------------------------------------------------------------------------------

    def _handle_wanted(self, event: WantedArrived, now: float) -> None:
        self.wanted_known, self._told = True, event.replicas
        self._want(event.replicas)

    def _handle_inference(self, event: InferenceSwitched, now: float) -> None:
        self.inference = event.on
        if self.wanted_known:
            self._want(self._told)

    def _want(self, replicas: tuple[WantedReplica, ...]) -> None:
        """Without the inference module everything is to be stopped, and begins again when the module does."""
        wanted = {item.replica_id: item if self.inference else replace(item, run=False) for item in replicas}
        for replica_id, item in wanted.items():
            replica = self.replicas.setdefault(replica_id, Replica(replica_id=replica_id))
            before = replica.wanted
            if before is None or (before.generation, before.run) != (item.generation, item.run):
                # asked anew: what went wrong before does not count against it
                replica.failures, replica.retry_at, replica.final, replica.ended = 0, 0.0, False, False
                replica.wedged = replica.wedged if before and proof.goes_on(before.serve, item.serve) else 0
                replica.attempt = replica.attempt if before and before.generation == item.generation else 0
                if replica.process is None or replica.process.generation != item.generation:
                    replica.code = replica.message = replica.log_tail = ""
            replica.wanted = item
        for replica in self.replicas.values():
            if replica.replica_id not in wanted:
                replica.wanted = None

    def _handle_adopted(self, event: Adopted, now: float) -> None:
        replica = self.replicas.setdefault(event.replica_id, Replica(replica_id=event.replica_id))
        if replica.process is not None:
            return
        self._launch += 1
        # One that was ready goes on serving while it is looked at: a new agent must not cost a request.
        phase = Phase.READY if event.ready_at is not None else Phase.STARTING
        replica.attempt = max(1, replica.attempt)
        replica.process = Process(
            launch=self._launch, generation=event.generation, serve=event.serve, phase=phase, pid=event.pid,
            port=event.port, key=event.key, started_at=event.started_at, ready_at=event.ready_at,
            context=event.context, slots=event.slots, loras=event.loras, since=now, heard_at=now, next_probe=now,
            next_deep=now + self.rules.deep_every,
            probe_pause=self.rules.probe_first,
        )  # fmt: skip

    def _handle_spawned(self, event: Spawned, now: float) -> None:
        process = self._process(event.replica_id, event.launch)
        if process is None or process.phase is not Phase.SPAWNING:
            return
        process.pid, process.port, process.key = event.pid, event.port, event.key
        self._enter(process, Phase.STARTING, now)
        process.started_at, process.probe_pause = now, self.rules.probe_first
        process.next_probe = now + process.probe_pause

    def _handle_spawn_failed(self, event: SpawnFailed, now: float) -> None:
        process = self._process(event.replica_id, event.launch)
        if process is None or process.phase is not Phase.SPAWNING:
            return
        replica = self.replicas[event.replica_id]
        replica.process, replica.final, replica.log_tail = None, event.final, ""
        # nothing was tried that could go better at once: straight to the pauses
        replica.failures = max(replica.failures + 1, self.rules.failures_to_backoff)
        self._failed(replica, event.code, event.message, now)

    def _handle_exited(self, event: Exited, now: float) -> None:
        process = self._process(event.replica_id, event.launch)
        if process is None:
            return
        replica = self.replicas[event.replica_id]
        replica.process = None
        if process.phase is Phase.ENDING and process.ending is None:
            return  # as we wished
        replica.wedged = replica.wedged + 1 if process.ending and process.ending[0] == proof.WEDGED else 0
        if process.ready_at is not None and now - process.ready_at >= self.rules.stable_after and not replica.wedged:
            replica.failures = 0
        replica.failures += 1
        replica.log_tail = event.log_tail
        replica.ended = process.serve.nodes > 1
        code, message = process.ending or death(event.status, event.log_tail, ready=process.ready_at is not None)
        self._failed(replica, code, message, now)

    def _failed(self, replica: Replica, code: str, message: str, now: float) -> None:
        """Remember why and choose the pause: none after the first, then 1, 2, 4 ... 60 s."""
        replica.code, replica.message = code, message
        pause = 0.0 if replica.failures <= 1 else min(self.rules.longest_pause, 2.0 ** min(replica.failures - 2, 10))
        replica.retry_at = now + pause

    def _handle_probed(self, event: Probed, now: float) -> None:
        process = self._process(event.replica_id, event.launch)
        if process is None:
            return
        if event.deep and process.phase in (Phase.READY, Phase.DRAINING):  # it may be wanted again while it drains
            proof.heard(process, self.rules, event.verdict, now)
            if event.verdict is Verdict.READY:
                self.replicas[event.replica_id].wedged = 0
            return
        process.asked_at = None
        process.context, process.slots = event.context or process.context, event.slots or process.slots
        process.engine_in_flight = event.in_flight
        replica = self.replicas[event.replica_id]
        if process.phase is Phase.STARTING:
            if event.verdict is Verdict.READY and event.deep:
                self._enter(process, Phase.READY, now)
                process.ready_at = process.heard_at = now
                process.loras = event.loras
                process.next_deep = now + self.rules.deep_every
                replica.code = replica.message = replica.log_tail = ""
                self._remember(replica, process, "one real token came out")
            elif event.verdict is Verdict.READY:  # it says that it is loaded: ask for a token
                self._probe(replica, process, now, deep=True, cause="health says loaded")
            elif event.verdict is Verdict.BROKEN:
                process.ending = ("engine_answers_wrong", event.message)
        elif event.verdict in (Verdict.READY, Verdict.BROKEN):
            process.silent, process.heard_at = 0, now
        else:  # one that was ready and does not listen, or says that it loads, serves nobody
            process.silent += 1

    def _handle_load(self, event: LoadReported, now: float) -> None:
        self.gateway_connected = True
        for replica in self.replicas.values():
            process = replica.process
            if process is None:
                continue
            load = event.replicas.get(replica.replica_id, ReplicaLoad())
            process.load = load
            proof.moved(process, None if load.still_for is None else now - load.still_for)
            if process.phase is Phase.DRAINING and now - process.since >= self.rules.drain_notice:
                process.idle = load.in_flight == 0
            if load.last_used_at is not None:
                replica.last_used_at = max(load.last_used_at, replica.last_used_at or 0.0)
            if replica.replica_id in event.suspects and process.phase is Phase.READY:
                process.next_probe = now
                proof.suspect(process, self.rules, now)

    def _handle_gateway_gone(self, event: GatewayGone, now: float) -> None:
        self.gateway_connected, self.gateway_left_at = False, now
        for replica in self.replicas.values():
            if replica.process:
                replica.process.load, replica.process.idle = None, False
                proof.moved(replica.process, None)

    def _handle_weights(self, event: WeightsSeen, now: float) -> None:
        self._weights = event if event.whole is not None else replace(event, whole=self._weights.whole)

    # --- decisions ------------------------------------------------------------------------------------------------

    def _decide(self, replica: Replica, now: float) -> None:
        """What to do with one replica now.

        1. nothing is known of what is wanted: leave everything as it is
        2. no process: forget it, wait, or start it; a part of a replica over several nodes starts when the others have all
           that it takes, and once only: those that still run have lost it, so all of them begin anew as another generation
        3. spawning: wait for the outcome, whatever was decided since
        4. ending: escalate when the grace is over
        5. it runs and is not wanted, or at another generation: drain it if it was ready, else end it; one that is ready serves on
           until the weights of the other generation are there. A part that leads no other has no requests of its own
        6. draining and wanted again at this generation: it is simply ready again
        7. starting: end it at its deadline (a failure), not before; else look at it
        8. ready: look at it now and then; replace it when it was silent for too long, or gives no token though asked twice
        """
        process = replica.process
        if process is None:
            if self.wanted_known:  # 1
                self._decide_without_process(replica, now)  # 2
            return
        if process.phase is Phase.SPAWNING:  # 3
            return
        if process.phase is Phase.ENDING:  # 4
            self._escalate(replica, process, now)
            return
        wanted = replica.wanted
        keep = not self.wanted_known or (wanted is not None and wanted.run and self._serves(process, wanted))
        if not keep:  # 5
            self._wind_down(replica, process, now)
            return
        process.leave_at = None
        if process.phase is Phase.DRAINING:  # 6
            self._enter(process, Phase.READY, now)
        elif process.phase is Phase.STARTING:  # 7
            self._decide_starting(replica, process, now)
        else:  # 8
            self._decide_ready(replica, process, now)

    def _decide_without_process(self, replica: Replica, now: float) -> None:
        if replica.wanted is None:
            del self.replicas[replica.replica_id]
            self._out.append(Forget(replica_id=replica.replica_id, cause="not wanted any more"))
        elif not replica.wanted.run or replica.final or replica.ended:
            replica.lacks = ""
        elif lacks := self._lacks(replica.wanted.serve):
            replica.lacks = lacks
            replica.code, replica.message = self._weights.fetches.get(lacks, ("", ""))
        elif replica.lacks:  # they are whole; what was said of them is over
            replica.lacks = replica.code = replica.message = ""
            self._decide_without_process(replica, now)
        elif replica.held:
            replica.code, replica.message = HELD
        elif now >= replica.retry_at:
            if replica.code == HELD[0]:
                replica.code = replica.message = ""
            self._launch += 1
            replica.attempt += 1
            wanted = replica.wanted
            replica.process = Process(
                launch=self._launch, generation=wanted.generation, serve=wanted.serve, phase=Phase.SPAWNING,
                started_at=now, since=now,
            )  # fmt: skip
            why = f"generation {wanted.generation} wanted, attempt {replica.attempt}"
            self._out.append(
                Spawn(
                    replica_id=replica.replica_id,
                    launch=self._launch,
                    generation=wanted.generation,
                    serve=wanted.serve,
                    cause=f"{why} after {replica.code}" if replica.code else why,
                )
            )

    def _decide_starting(self, replica: Replica, process: Process, now: float) -> None:
        deadline = self.rules.start_deadline(process.serve)
        if process.ending is not None:
            self._end(replica, process, now, cause=process.ending[0])
        elif now - process.started_at >= deadline:
            message = (
                f"The engine was not ready after {deadline:.0f} s: see its log, or allow the profile a longer start."
            )
            process.ending = ("start_timeout", message)
            self._end(replica, process, now, cause="start_timeout")
        elif process.asked_at is None and now >= process.next_probe:
            process.probe_pause = min(self.rules.probe_longest, process.probe_pause * 1.5)
            self._probe(replica, process, now, deep=False, cause="starting")

    def _decide_ready(self, replica: Replica, process: Process, now: float) -> None:
        if process.silent >= self.rules.silent_looks and now - process.heard_at >= self.rules.silent_for:
            message = f"The engine did not answer for {now - process.heard_at:.0f} s and was replaced."
            process.ending = ("engine_unresponsive", message)
            self._end(replica, process, now, cause="engine_unresponsive")
            return
        proof.judge(process, self.rules, now)
        if proof.wedged(process, self.rules):
            message = "The engine says that it is well, but not one token came out of it; it was replaced."
            process.ending = (proof.WEDGED, message)
            self._end(replica, process, now, cause=proof.WEDGED)
            return
        if process.asked_at is None and now >= process.next_probe:
            process.probe_pause = self.rules.probe_ready if process.silent == 0 else self.rules.probe_longest
            self._probe(replica, process, now, deep=False, cause="a look at a ready engine")
        if proof.due(process, self.rules, now):
            proof.asked(process, now)
            self._out.append(
                Probe(replica_id=replica.replica_id, launch=process.launch, deep=True, cause="does it still compute?")
            )

    def _wind_down(self, replica: Replica, process: Process, now: float) -> None:
        """A ready engine takes nothing new and finishes what it has, for as long as it may; then it is told to end.

        It serves on for a moment first: a router that has not heard of it yet would send requests that nobody takes.
        """
        if process.phase is Phase.STARTING:
            self._end(replica, process, now, cause="not wanted before it was ready")
            return
        if process.serve.rank or (replica.wanted is not None and replica.wanted.grace == 0):
            self._end(replica, process, now, cause="not wanted, and nothing is waited for")
            return
        if process.phase is Phase.READY:
            process.leave_at = process.leave_at or now + self.rules.handover
            if now < process.leave_at:
                return
            self._enter(process, Phase.DRAINING, now)
            process.idle, process.engine_in_flight = False, None
            process.next_probe, process.probe_pause = now + self.rules.gateway_grace, self.rules.probe_longest
            return
        patience = process.serve.drain_timeout or self.rules.drain_timeout
        if replica.wanted is not None and replica.wanted.grace is not None:  # another waits for its room
            patience = min(patience, replica.wanted.grace)
        if now - process.since >= patience:
            self._end(replica, process, now, cause=f"drained for {patience:.0f} s")
        elif self.gateway_connected:
            if process.idle:
                self._end(replica, process, now, cause="nothing in flight")
        elif now - max(self.gateway_left_at, process.since) >= self.rules.gateway_grace:
            # no gateway: its requests ended with it, but the engine may not have noticed yet
            if process.engine_in_flight == 0:
                self._end(replica, process, now, cause="no gateway, and the engine is idle")
            elif process.asked_at is None and now >= process.next_probe:
                self._probe(replica, process, now, deep=False, cause="draining without a gateway")

    def _escalate(self, replica: Replica, process: Process, now: float) -> None:
        if process.killed_at is None and now - process.since >= self.rules.term_grace:
            process.killed_at = now
            self._signal(replica, process, kill=True, cause=f"alive {self.rules.term_grace:.0f} s after SIGTERM")
        elif process.killed_at is not None and now - process.killed_at >= self.rules.kill_again:
            process.killed_at = now
            self._signal(replica, process, kill=True, cause="alive after SIGKILL")

    # --- small steps ----------------------------------------------------------------------------------------------

    def _lacks(self, serve: Serve) -> str:
        """A version that it needs and this node has not; "": it has all."""
        whole = self._weights.whole or frozenset()
        return next((version for version in versions(serve) if version not in whole), "")

    def _serves(self, process: Process, wanted: WantedReplica) -> bool:
        """Whether this process is what is wanted, or what there is until it can be had."""
        same = wanted.generation == process.generation
        return same or (process.phase is Phase.READY and bool(self._lacks(wanted.serve)))

    def _process(self, replica_id: str, launch: int) -> Process | None:
        replica = self.replicas.get(replica_id)
        process = replica.process if replica else None
        return process if process is not None and process.launch == launch else None

    def _enter(self, process: Process, phase: Phase, now: float) -> None:
        process.phase, process.since = phase, now

    def _end(self, replica: Replica, process: Process, now: float, *, cause: str) -> None:
        self._enter(process, Phase.ENDING, now)
        self._signal(replica, process, kill=False, cause=cause)

    def _signal(self, replica: Replica, process: Process, *, kill: bool, cause: str) -> None:
        self._out.append(Signal(replica_id=replica.replica_id, launch=process.launch, kill=kill, cause=cause))

    def _probe(self, replica: Replica, process: Process, now: float, *, deep: bool, cause: str) -> None:
        process.asked_at, process.next_probe = now, now + process.probe_pause
        self._out.append(Probe(replica_id=replica.replica_id, launch=process.launch, deep=deep, cause=cause))

    def _remember(self, replica: Replica, process: Process, cause: str) -> None:
        self._out.append(
            Remember(
                replica_id=replica.replica_id,
                launch=process.launch,
                ready_at=process.ready_at or 0.0,
                context=process.context,
                slots=process.slots,
                loras=process.loras,
                cause=cause,
            )
        )
