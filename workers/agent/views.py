"""What others see of the machine: the gateway its engines, the controllers a report of every replica. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.domain.states import ReplicaState
from cluster.wire import LocalAdapter, LocalEngine, ReplicaReport, StartingReplica
from workers.agent.state import Phase, Process, Replica, Rules, versions


def engines(replicas: Iterable[Replica]) -> tuple[LocalEngine, ...]:
    """The engines that the gateway may use, or must let finish. Of a replica over several nodes only the leader answers."""
    out = []
    for replica in replicas:
        process = replica.process
        if process is not None and not process.serve.rank and process.phase in (Phase.READY, Phase.DRAINING):
            out.append(
                LocalEngine(
                    replica_id=replica.replica_id,
                    model=process.serve.model,
                    engine=process.serve.engine,
                    state="ready" if process.phase is Phase.READY else "draining",
                    host="127.0.0.1",
                    port=process.port,
                    key=process.key,
                    slots=process.slots or process.serve.slots or 1,
                    context=process.context or process.serve.context,
                    served_name=process.serve.model,
                    # one that owes a token is left to those who have nobody else, until it gives one or is replaced
                    leaving=process.phase is Phase.READY and (process.leave_at is not None or process.deep_missed > 0),
                    adapters=_adapters(process),
                )
            )
    return tuple(out)


def _adapters(process: Process) -> tuple[LocalAdapter, ...]:
    """By number where the engine has given some, else by name."""
    loras: tuple[int | None, ...] = process.loras or (None,) * len(process.serve.adapters)
    return tuple(
        LocalAdapter(name=item.name, weights=item.weights.name, id=number)
        for item, number in zip(process.serve.adapters, loras, strict=False)
    )


def used(replicas: Iterable[Replica]) -> frozenset[str]:
    """Versions of weights that an engine has open, or that one is to begin with."""
    found: set[str] = set()
    for replica in replicas:
        found |= set(versions(replica.process.serve)) if replica.process is not None else set()
        found |= set(versions(replica.wanted.serve)) if replica.wanted is not None else set()
    return frozenset(found)


def starting(replicas: Iterable[Replica], rules: Rules) -> tuple[StartingReplica, ...]:
    """Wanted replicas that are not ready, and why."""
    out = []
    for replica in replicas:
        now = state(replica, rules)
        if (
            replica.wanted
            and replica.run
            and not replica.wanted.serve.rank
            and now not in (ReplicaState.READY, ReplicaState.DRAINING)
        ):
            out.append(
                StartingReplica(
                    replica_id=replica.replica_id,
                    model=replica.wanted.serve.model,
                    state=now,
                    code=replica.code,
                    message=replica.message,
                )
            )
    return tuple(out)


def state(replica: Replica, rules: Rules) -> ReplicaState:
    process = replica.process
    if process is None:
        if not replica.run:
            return ReplicaState.STOPPED
        if replica.final:
            return ReplicaState.FAILED
        if replica.ended:
            return ReplicaState.BACKOFF
        if replica.lacks:
            return ReplicaState.FETCHING
        stuck = replica.failures >= rules.failures_to_backoff
        return ReplicaState.BACKOFF if stuck else ReplicaState.STARTING
    if process.phase is Phase.READY:
        return ReplicaState.READY
    if process.phase is Phase.DRAINING or (process.phase is Phase.ENDING and process.ending is None):
        return ReplicaState.DRAINING
    return ReplicaState.STARTING


def reports(replicas: Iterable[Replica], rules: Rules) -> tuple[ReplicaReport, ...]:
    """Everything about every replica, for a heartbeat; memory is the shell's to add."""
    out = []
    for replica in replicas:
        process = replica.process
        generation = process.generation if process else replica.wanted.generation if replica.wanted else 0
        load = process.load if process else None
        out.append(
            ReplicaReport(
                replica_id=replica.replica_id,
                generation=generation,
                state=state(replica, rules),
                code=replica.code,
                message=replica.message,
                log_tail=replica.log_tail,
                attempt=max(1, replica.attempt),
                pid=process.pid if process else None,
                port=process.port or None if process else None,
                started_at=process.started_at if process else None,
                ready_at=process.ready_at if process else None,
                context=process.context if process else None,
                slots=process.slots if process else None,
                in_flight=load.in_flight if load else 0,
                waiting=load.waiting if load else None,
                last_used_at=replica.last_used_at,
                wedged=replica.wedged,
            )
        )
    return tuple(out)
