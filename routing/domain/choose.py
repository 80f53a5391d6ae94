"""Which engine answers a request: the model's route, what is in flight, and dice in; a seat or a refusal out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import affinity
from routing.domain.openai import SHOWN_NAME, model_not_found
from routing.domain.snapshot import ModelEntry
from routing.domain.tenancy import Holder
from routing.domain.waking import parked


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A ready engine. `key` is the engine's own; `slots` requests run at once, more wait in the engine."""

    replica_id: str
    host: str
    port: int
    key: str
    slots: int = 1
    served_name: str = ""  # name the engine wants in the body; empty: any
    context: int = 0  # tokens of one request; 0: not known
    engine: str = ""  # its kind, as the agent names it
    lora: bytes = b""  # JSON that says which adapters of the engine apply; empty: it has none, or goes by the name


@dataclass(frozen=True, slots=True)
class _Taken:
    """A seat with what is in flight there, and what it has room for."""

    seat: Seat
    in_flight: int
    slots: int

    @property
    def name(self) -> str:
        return self.seat.replica_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A replica that cannot be used now, and why. `state` as in cluster.domain.states.ReplicaState."""

    state: str
    code: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A model of the catalogue with what this node has for it."""

    model: ModelEntry
    seats: tuple[Seat, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    leaving: bool = False  # the seats are about to drain: for requests that come all the same, nothing to offer
    wakes: bool = False  # where nobody answers, controllers are told of a request: see waking.wakes
    room: int = 0  # requests at once of all seats of the model


NOTHING_FULL: Mapping[str, int] = MappingProxyType({})
RETRY_AFTER = {
    "pending": 5.0, "fetching": 10.0, "starting": 3.0, "draining": 5.0, "backoff": 10.0, "failed": 30.0, "lost": 10.0,
}  # fmt: skip
"""Seconds after which asking again makes sense, by the state of the replica that is nearest to ready."""
_NEAREST = ("starting", "backoff", "draining", "fetching", "pending", "unknown", "lost", "failed")
_WORDS = {
    "pending": "its replica is being placed",
    "fetching": "its weights are being fetched",
    "starting": "its engine is starting",
    "draining": "its engine is being stopped",
    "backoff": "its engine ended and is started again after a pause",
    "failed": "its engine could not be started",
    "unknown": "its node has not said yet whether it serves it",
    "lost": "its node does not answer",
    "absent": "its node does not offer it",
}


def allowed(key: Holder, name: str) -> bool:
    """Whether this key, and every scope that it is in, may use the model or adapter of this name."""
    return key.models is None or name in key.models


def vet(route: Route | None, key: Holder, *, name: str, embeddings: bool | None) -> Route | Refused:
    """Whether this key may send this kind of request to the model `name`, wherever it is served. `embeddings`: the kind of
    model that answers it, None where either does.

    1. not in the catalogue, or not allowed   404 `model_not_found`, one text for both
    2. disabled                               503 `model_disabled` with the reason; asking again is no use by itself
    3. the wrong kind of endpoint             400 `wrong_endpoint`
    """
    if route is None or not allowed(key, name):  # 1
        return model_not_found(name)
    model = route.model
    if not model.enabled:  # 2
        return disabled(model)
    if embeddings is not None and model.embeddings != embeddings:  # 3
        return _wrong_endpoint(model)
    return route


def choose(
    route: Route,
    *,
    in_flight: Mapping[str, int],
    dice: float,
    session: str = "",
    without: Collection[str] = (),
    full: Mapping[str, int] = NOTHING_FULL,
) -> Seat | Refused:
    """The seat of this node for a request that was vetted, or why there is none. `without` names replicas tried.

    `in_flight` counts by replica what runs and waits in its engine, `dice` is in [0, 1), `session` names the
    conversation (empty: it need not stay where it was). `full`: of engines in which requests wait, how many run: they have
    no more room than that, whatever their slots, as when the cache of vLLM is full.

    1. no ready engine   503 `model_not_ready` with why and when to ask again
    2. a session         its home, or the next in its order while that is overloaded
    3. else              the least in flight per slot, before a slot is doubled; dice among equals
    """
    seats = route.seats
    if without:
        seats = tuple(seat for seat in seats if seat.replica_id not in without)
    if not seats:  # 1
        return not_ready(route)
    if len(seats) == 1:
        return seats[0]
    if session:  # 2
        places = [_Taken(seat, in_flight.get(seat.replica_id, 0), _room(seat, full)) for seat in seats]
        return affinity.place(session, places).seat
    load = [in_flight.get(seat.replica_id, 0) / _room(seat, full) for seat in seats]  # 3
    least = min(load)
    best = [seat for seat, value in zip(seats, load, strict=True) if value == least]
    return best[int(dice * len(best))]


def _room(seat: Seat, full: Mapping[str, int]) -> int:
    """Requests at once that its engine has room for; at least one."""
    return max(1, min(seat.slots, full.get(seat.replica_id, seat.slots)))


def disabled(model: ModelEntry) -> Refused:
    """503 `model_disabled`, with the controllers' reason."""
    said = model.reason.rstrip(".") if model.code != "model_disabled" else ""  # that one says no more than we do
    why = f": {said}" if said else ""
    return Refused(
        Kind.UNAVAILABLE,
        "model_disabled",
        f"The model '{model.name[:SHOWN_NAME]}' is disabled{why}. Ask an administrator to enable it, or use another model.",
        param="model",
        extra={"reason": model.code} if model.code else None,
    )


def _wrong_endpoint(model: ModelEntry) -> Refused:
    name = model.name[:SHOWN_NAME]
    message = (
        f"The model '{name}' computes embeddings or ranks texts: send it to /v1/embeddings or /v1/rerank."
        if model.embeddings
        else f"The model '{name}' generates text, has no embeddings and ranks nothing: send it to /v1/chat/completions."
    )
    return Refused(Kind.INVALID, "wrong_endpoint", message, param="model")


def not_ready(route: Route) -> Refused:
    """503 `model_not_ready`: the replica that is nearest to ready says why; else what the controllers know.

    A model that is parked is refused as such: `model_parked` with the cause.
    """
    refused = parked(route.model)
    if refused is not None:
        return refused
    nearest = min(
        route.waiting,
        key=lambda w: _NEAREST.index(w.state) if w.state in _NEAREST else len(_NEAREST),
        default=None,
    )
    model = route.model
    if nearest is not None:
        why = _WORDS.get(nearest.state, f"its replica is {nearest.state}")
        detail = nearest.message or model.reason
        code, wait = nearest.code or model.code, RETRY_AFTER.get(nearest.state, 5.0)
    else:
        why, detail, code, wait = "no replica of it runs here", model.reason, model.code, 5.0
    told = f" ({detail.rstrip('.')})" if detail else ""
    extra = {"state": nearest.state if nearest else "absent"}
    if code:
        extra["reason"] = code
    return Refused(
        Kind.UNAVAILABLE,
        "model_not_ready",
        f"The model '{model.name[:SHOWN_NAME]}' is not ready: {why}{told}. Try again in {wait:.0f} s.",
        param="model",
        retry_after=wait,
        extra=extra,
    )
