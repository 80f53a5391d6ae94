"""An engine's own numbers of its adapters: found by path, whatever their order, and none applies by itself."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from cluster.wire import AdapterFile, Serve, Weights
from workers.agent.engines.adapters import numbers
from workers.agent.engines.base import Look, Target
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.events import Verdict

PLAIN = AdapterFile(name="a", weights=Weights(path="/srv/a.gguf"))
FETCHED = AdapterFile(name="b", weights=Weights(version="ver_0mhx3k99", path="sub/b.gguf"))
LISTED = [
    {"id": 0, "path": "/var/lib/llmgw/weights/ver_0mhx3k99/files/sub/b.gguf", "scale": 0.0},
    {"id": 1, "path": "/srv/a.gguf", "scale": 0.0},
]


def test_numbers_are_found_by_the_path_of_the_file() -> None:
    assert numbers([PLAIN, FETCHED], LISTED) == (1, 0)


@pytest.mark.parametrize(
    "listed",
    [
        None,
        {},
        [],
        [7],
        [{"id": 1}],
        [{"id": None, "path": "/srv/a.gguf"}],
        [{"id": True, "path": "/srv/a.gguf"}],
        [{"id": 1, "path": "/srv/other/a.gguf"}],
    ],
)
def test_a_list_without_an_adapter_that_it_was_started_with_is_no_list(listed: Any) -> None:
    assert numbers([PLAIN], listed) == "it does not list the adapter a that it was started with"


async def look(listed: Any, *, status: int = 200, seen: list[Any] | None = None) -> Look:
    def serve(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/lora-adapters":
            if request.method == "POST" and seen is not None:
                seen.append(json.loads(request.content))
                return httpx.Response(status, json={})
            return httpx.Response(status if seen is None else 200, json=listed)
        if request.url.path == "/props":
            return httpx.Response(200, json={"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}})
        return httpx.Response(200, json={"usage": {"completion_tokens": 1}})

    wanted = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w"), adapters=(PLAIN, FETCHED))
    async with httpx.AsyncClient(transport=httpx.MockTransport(serve)) as client:
        return await LlamaCpp().look(client, Target(port=1, serve=wanted, key="k"), deep=True)


async def test_an_engine_is_ready_with_its_shape_and_the_numbers_of_its_adapters() -> None:
    assert await look(LISTED) == Look(verdict=Verdict.READY, context=2048, slots=4, loras=(1, 0))


async def test_an_engine_that_lists_no_adapters_is_none_that_can_serve_them() -> None:
    assert (await look([])).verdict is Verdict.BROKEN
    assert (await look(LISTED, status=404)).verdict is Verdict.BROKEN


async def test_an_engine_that_applies_adapters_by_itself_is_told_not_to() -> None:
    told: list[Any] = []
    on = [{**LISTED[0], "scale": 1.0}, LISTED[1]]
    assert (await look(on, seen=told)).loras == (1, 0)
    assert told == [[{"id": 0, "scale": 0.0}]]
    refused = await look(on, seen=[], status=500)
    assert (refused.verdict, "switched off" in refused.message) == (Verdict.BROKEN, True)
