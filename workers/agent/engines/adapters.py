"""The numbers that llama.cpp has given to its adapters: asked for when it is ready, found by the paths of their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx

from cluster.wire import AdapterFile
from workers.agent.engines.base import QUICK, Look, Target, fetch
from workers.agent.events import Verdict

PATH = "/lora-adapters"


def numbers(adapters: Sequence[AdapterFile], listed: Any) -> tuple[int, ...] | str:
    """Of each adapter its number in the engine's own list; or what is wrong with the list. A version's file lies below a folder
    that is named after the version."""
    rows = listed if isinstance(listed, list) else []
    by_path = {row.get("path"): row.get("id") for row in rows if isinstance(row, dict)}
    found = []
    for adapter in adapters:
        weights = adapter.weights
        at = next(
            (path for path in by_path if isinstance(path, str) and _is(path, weights.version, weights.path)), None
        )
        number = by_path[at] if at is not None else None
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            return f"it does not list the adapter {adapter.name} that it was started with"
        found.append(number)
    return tuple(found)


def _is(path: str, version: str, file: str) -> bool:
    return path.endswith(f"/{file}") and f"/{version}/" in path if version else path == file


async def ask(client: httpx.AsyncClient, target: Target, look: Look) -> Look:
    """What was found of a ready engine, with its adapters' numbers. One that applies adapters by itself is told not to."""
    answer = await fetch(client, target, "GET", PATH, timeout=QUICK)
    if isinstance(answer, Look):
        return answer
    try:
        listed = answer.json() if answer.status_code == 200 else None
    except ValueError:
        listed = None
    found = numbers(target.serve.adapters, listed)
    if isinstance(found, str):
        return Look(verdict=Verdict.BROKEN, message=f"{PATH}: {found}")
    applied = [row["id"] for row in listed or () if row.get("scale")]
    if applied:
        off = [{"id": number, "scale": 0.0} for number in applied]
        told = await fetch(client, target, "POST", PATH, timeout=QUICK, body=off)
        if isinstance(told, Look):
            return told
        if told.status_code != 200:
            text = f"{PATH} answered {told.status_code} where adapters were to be switched off"
            return Look(verdict=Verdict.BROKEN, message=text)
    return replace(look, loras=found)
