"""An adapter as the data path sees it: a model of its own name that the replicas of its base answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import orjson

from cluster.wire import LocalAdapter, LocalEngine
from routing.domain.choose import Seat, Waiting
from routing.domain.openai import NO_LORA
from routing.domain.snapshot import AdapterEntry, ModelEntry

LACKS = "its engine runs without this adapter and is being replaced by one that has it"


def entry_of(model: ModelEntry, adapter: AdapterEntry) -> ModelEntry:
    """It stands and falls with its model, and has its own name and age."""
    return replace(model, name=adapter.name, created=adapter.created, parent=model.name, adapters=())


def held(engine: LocalEngine, adapter: AdapterEntry) -> LocalAdapter | None:
    """The adapter in this engine; None: it has none of that name, or another file under it. The one before its last update counts:
    while replicas are replaced the others go on answering."""
    files = {adapter.weights, *([adapter.former] if adapter.former else [])}
    return next((item for item in engine.adapters if item.name == adapter.name and item.weights in files), None)


def base_seat(seat: Seat, engine: LocalEngine) -> Seat:
    """The seat for requests of the model itself: none of the engine's adapters applies, whatever a client says."""
    return replace(seat, lora=NO_LORA) if any(item.id is not None for item in engine.adapters) else seat


def adapter_seat(seat: Seat, engine: LocalEngine, adapter: AdapterEntry) -> Seat | None:
    """The seat for requests of the adapter, None where the engine lacks it: by the number that the engine has given it (llama.cpp),
    else by its name (vLLM)."""
    found = held(engine, adapter)
    if found is None:
        return None
    if found.id is None:
        return replace(seat, served_name=found.name)
    return replace(seat, lora=orjson.dumps([{"id": found.id, "scale": adapter.scale}]))


def lacking(engines: Iterable[LocalEngine], adapter: AdapterEntry) -> tuple[Waiting, ...]:
    """Engines that are ready and lack it: what an adapter waits for that has just been added."""
    return tuple(
        Waiting(state="starting", code="adapter_not_loaded", message=LACKS)
        for engine in engines
        if held(engine, adapter) is None
    )
