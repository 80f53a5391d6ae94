"""The parts of a replica over several nodes, one on each: what a node is told of its part, what is made of what it says, and how
the replica stands then. Pure.

One part leads (rank 0): it alone answers clients. An engine that has lost a part computes nothing any more and none can join it,
so the parts begin together and end together; beginning anew is another generation of the replica.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from cluster.domain.states import ReplicaState
from cluster.domain.types import NOTHING_STARTED

TRIED_ALONE = NOTHING_STARTED | {"spawn_failed"}
"""Codes of a part that had no process yet, and that its node tries again by itself."""
PART_LOST = "part_lost"
FIRST_PORT, PORTS = 23000, 1000
"""Where parts meet: below the ports of engines, and below those that the kernel hands out."""
STRIDE = 37
"""Ports from one generation's to the next one's: shares no factor with their number."""
_AWAY = frozenset({ReplicaState.PENDING, ReplicaState.FETCHING, ReplicaState.STOPPED})
SETTLE, _LONGEST_PAUSE = 2.0, 60.0


@dataclass(frozen=True, kw_only=True)
class PartView:
    """`node`: its name; `gone`: that it was removed from the cluster. `generation`: that its node last spoke of, 0: it has not yet;
    what follows is of that one. `since`: when the state began."""

    rank: int
    node: str
    generation: int = 0
    state: ReplicaState = ReplicaState.PENDING
    since: float = 0.0
    code: str = ""
    message: str = ""
    pid: int | None = None
    gone: bool = False

    def of(self, generation: int) -> bool:
        return self.generation == generation and not self.gone

    @property
    def ended(self) -> bool:
        """Whether its process has ended by itself, or is refused for good: it comes back in this generation no more."""
        failed = self.state is ReplicaState.BACKOFF and self.code not in TRIED_ALONE
        return failed or self.state is ReplicaState.FAILED

    @property
    def over(self) -> bool:
        """Whether nothing of it is left, nor will be."""
        return self.gone or self.state is ReplicaState.STOPPED


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a node reports of its part."""

    generation: int
    state: ReplicaState
    code: str = ""
    message: str = ""
    pid: int | None = None


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a node is told of its part: as `cluster.wire.WantedReplica`."""

    generation: int
    run: bool
    grace: float | None = None
    hold: bool = False


@dataclass(frozen=True, kw_only=True)
class Stand:
    """How the replica stands. `by`: rank of the part that the code and the words are of; None: of none."""

    state: ReplicaState
    code: str = ""
    message: str = ""
    by: int | None = None


def broken(parts: Collection[PartView], generation: int) -> bool:
    """Whether a part of this generation has ended, so that none of the others is worth anything."""
    return any(item.of(generation) and item.ended for item in parts)


def order(part: PartView, parts: Sequence[PartView], *, run: bool, generation: int, grace: float | None) -> Order:
    """What the node of a part is told. `run`, `generation`, `grace`: of the replica.

    1. a part has ended by itself, or is refused for good: the others are ended at once
    2. it is to stop: the leader finishes its requests, or has `grace` for it; the others go on with it until it has stopped,
       or at once where it is lost (grace 0)
    3. it is to begin anew: in the same order, or at once after a part has ended (grace 0)
    4. else it has all that it takes, and begins when all have
    """
    leader = parts[0]
    if run and broken(parts, generation):  # 1
        return Order(generation=generation, run=False, grace=0.0)
    goes_on = Order(generation=part.generation, run=True, hold=True)
    follows = part.rank > 0 and part.pid is not None and not leader.over and grace != 0
    if not run:  # 2
        return goes_on if follows else Order(generation=generation, run=False, grace=grace)
    if follows and part.generation < generation and leader.generation < generation:  # 3
        return goes_on
    away = any(not item.of(generation) or item.state in _AWAY for item in parts)
    return Order(generation=generation, run=True, grace=grace, hold=away)  # 4


def heard(part: PartView, said: Said | None, *, run: bool, told: bool, generation: int, now: float) -> PartView:
    """A part after its node has reported. `run`, `generation`: of the replica; `told`: whether its node was told to run it; `said`
    None: the node has nothing of it.

    1. it has ended by itself in this generation, or is refused: nothing undoes that while the replica is to run
    2. it ran in this generation, is to run, and its process is not there any more, or is another: the machine or its agent
       began anew, and it is lost
    3. nothing is there: it has stopped if it is to, else it is to come
    4. as reported
    """
    here = part.of(generation)
    if here and part.ended and run:  # 1
        return part
    explained = said is not None and said.state in (ReplicaState.BACKOFF, ReplicaState.FAILED) and bool(said.code)
    gone = said is None or (said.generation == generation and said.pid != part.pid)
    if here and part.pid is not None and told and gone and not explained:  # 2
        text = "Its process is not there any more: the machine or its agent began anew."
        return replace(part, state=ReplicaState.BACKOFF, since=now, code=PART_LOST, message=text, pid=None)
    if said is None:  # 3
        state = ReplicaState.PENDING if run else ReplicaState.STOPPED
        since = part.since if part.state is state else now
        return replace(part, state=state, since=since, code="", message="", pid=None)
    same = part.state is said.state and part.generation == said.generation
    return replace(  # 4
        part,
        generation=said.generation,
        state=said.state,
        since=part.since if same else now,
        code=said.code,
        message=said.message,
        pid=said.pid,
    )


def stand(parts: Sequence[PartView], *, run: bool, generation: int, begun: bool) -> Stand:
    """How a replica stands by its parts. `begun`: it was started before, in this generation or after a part had ended.

    1. it is to stop: when nothing of any part is left it has
    2. a part is refused for good; parts have ended by themselves, in the words of each, the first that did first; a part could not
       begin, and its node tries again
    3. a part waits for its weights
    4. all are ready: the leader answers, and the processes of the others live
    5. no node has spoken of it yet
    6. it starts, in the words of the leader
    """
    if not run:  # 1
        over = all(item.over for item in parts)
        return Stand(state=ReplicaState.STOPPED if over else ReplicaState.DRAINING)
    here = [item for item in parts if item.of(generation)]
    for found in (  # 2, 3
        [item for item in here if item.state is ReplicaState.FAILED],
        sorted((item for item in here if item.ended), key=lambda item: (item.since, item.rank)),
        [item for item in here if item.state is ReplicaState.BACKOFF],
        [item for item in here if item.state is ReplicaState.FETCHING],
    ):
        if found:
            these = found if found[0].ended else found[:1]
            words = "; ".join(_words(item, len(parts)).removesuffix(".") for item in these)
            return Stand(state=found[0].state, code=found[0].code, message=words, by=found[0].rank)
    if len(here) == len(parts) and all(item.state is ReplicaState.READY for item in here):  # 4
        return Stand(state=ReplicaState.READY)
    if not here and not begun:  # 5
        return Stand(state=ReplicaState.PENDING)
    leader = parts[0]  # 6
    told = leader.of(generation) and leader.state is ReplicaState.STARTING
    return (
        Stand(state=ReplicaState.STARTING, code=leader.code, message=leader.message)
        if told
        else Stand(state=ReplicaState.STARTING)
    )


def _words(part: PartView, count: int) -> str:
    return f"part {part.rank + 1} of {count}, on node {part.node}: {part.message or part.code}"


def pause(starts: int) -> float:
    """Seconds from the end of a part to the next start of all, after so many starts in a row that failed: 2, 2, 2, 4, 8 ... 60 s.
    Never less, so that all that ended have said how: what is heard first may be the consequence."""
    return min(_LONGEST_PAUSE, max(SETTLE, 2.0 ** min(starts - 2, 10)))


def meeting_port(replica_id: str, generation: int, taken: Collection[int]) -> int:
    """Where the parts of a replica meet on the leader's node: another for each generation, so that one that somebody else holds, or
    that an engine that has ended has not given back, costs one start. `taken`: of other replicas that are led there."""
    mark = int.from_bytes(hashlib.sha256(replica_id.encode()).digest()[:4], "big") + STRIDE * generation
    ports = (FIRST_PORT + (mark + step) % PORTS for step in range(PORTS))
    return next((port for port in ports if port not in taken), FIRST_PORT)


def fabric_address(given: str, advertised: str) -> str:
    """The IP address at which a node's fabric reaches it: as an administrator gave it, else that of its node listener; "" where
    that is a name. `advertised`: base URL."""
    host = given or (urlsplit(advertised).hostname or "")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def unreachable(fabric: str, given: str, advertised: str, *, knows: bool) -> str:
    """Why other nodes of its fabric cannot reach an engine of this node; "" if they can, or it is on none. `knows`: its agent can
    run a part of a replica.

    1. its agent is of before replicas over several nodes
    2. its address there is not known; 3. it is none that others reach
    """
    if not fabric:
        return ""
    if not knows:  # 1
        return "its llmgw does not know replicas over several nodes yet: upgrade it there"
    mend = "give it with `llmgw node fabric NODE FABRIC --address IP`"
    found = fabric_address(given, advertised)
    if not found:  # 2
        return f"its address on fabric {fabric} is not known: {mend}"
    address = ipaddress.ip_address(found)
    if address.is_loopback or address.is_unspecified or address.is_link_local:  # 3
        return f"its address on fabric {fabric} is {found}, where no other node reaches it: {mend}"
    return ""
