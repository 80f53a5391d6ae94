"""Whose requests controllers are told of, and what a request is told whose model did not come up."""

from __future__ import annotations

from cluster.domain.demand import Stage
from llmgw_site.lib.errors import Kind, Refused
from routing.domain.openai import SHOWN_NAME
from routing.domain.snapshot import ModelEntry

PARKED, NOT_WANTED = "model_parked", "model_not_wanted"
NO_CONTROLLER = "activation_unavailable"
_THERE = frozenset({"ready", "pending", "fetching", "starting", "backoff", "draining"})
"""States of a replica that answers, or that its node works at."""
_MOST = 1000
"""Characters of a controller's reason that are passed on."""


def wakes(model: ModelEntry) -> bool:
    """Whether a request that nobody answers is to be told to controllers.

    1. a model on demand: it may be at rest
    2. one that always runs, and of which the snapshot names no replica that is there or to come: each request is an
       attempt to place one. Of one that is there its own node says how it stands
    """
    if model.on_demand or not model.enabled or model.external is not None or model.code == NOT_WANTED:
        return model.on_demand  # 1
    return all(item.state not in _THERE for item in model.placed)  # 2


def came_to_nothing(name: str, *, state: str, code: str, message: str) -> Refused | None:
    """The refusal of an attempt that is over without a ready replica; None: it goes on, or is ready.

    1. parked      503 `model_parked`: asking again is no use by itself
    2. failed      503 `model_not_ready`, with what its node does about it
    3. nowhere     503 `model_not_ready`; each new request is a fresh attempt
    4. unwanted    503 `model_disabled`: the snapshot is about to say so
    """
    name, told = name[:SHOWN_NAME], message[:_MOST].rstrip(".")
    extra = {"state": state, "reason": code}
    if state == Stage.PARKED:  # 1
        return _parked(name, told)
    if state == Stage.FAILED:  # 2
        text = f"The model '{name}' did not come up: {told}. Ask again in 10 s."
        return Refused(Kind.UNAVAILABLE, "model_not_ready", text, param="model", retry_after=10, extra=extra)
    if state == Stage.NOWHERE:  # 3
        text = f"There is no place for the model '{name}' now: {told}. Ask again in 10 s."
        return Refused(Kind.UNAVAILABLE, "model_not_ready", text, param="model", retry_after=10, extra=extra)
    if state == Stage.UNWANTED:  # 4
        text = f"The model '{name}' cannot be asked for: {told}."
        return Refused(Kind.UNAVAILABLE, "model_disabled", text, param="model", extra=extra)
    return None


def parked(model: ModelEntry) -> Refused | None:
    """The refusal of a model that is parked, as the snapshot says; None: it is not."""
    if model.code != PARKED:
        return None
    return _parked(model.name[:SHOWN_NAME], model.reason[:_MOST].rstrip("."))


def _parked(name: str, told: str) -> Refused:
    text = f"The model '{name}' cannot be served: {told or 'it is parked'}."
    return Refused(Kind.UNAVAILABLE, PARKED, text, param="model", extra={"state": "parked", "reason": PARKED})


def no_controller(name: str) -> Refused:
    """503 `activation_unavailable`: what runs is answered all the same, what is at rest needs a controller."""
    return Refused(
        Kind.UNAVAILABLE,
        NO_CONTROLLER,
        f"The model '{name[:SHOWN_NAME]}' is at rest, and no controller answers that could start it: try again in a moment, "
        "use a model that runs, or tell an administrator.",
        param="model",
        retry_after=5,
    )


def too_long(name: str, seconds: float, *, far: str = "") -> Refused:
    """503 `activation_timeout`; `far`: how far it is, where that is known. It goes on."""
    how = f"It goes on ({far[:_MOST]})" if far else "It may still be loading"
    return Refused(
        Kind.UNAVAILABLE,
        "activation_timeout",
        f"No replica of the model '{name[:SHOWN_NAME]}' was there, and none has come up within {seconds:g} s. {how}: "
        "ask again in a minute.",
        param="model",
        retry_after=60,
        extra={"progress": far[:_MOST]} if far else {},
    )
