"""What each answer of an engine means, by tables; the real engine is looked at in test_agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from cluster.wire import Serve, Weights
from workers.agent.engines.base import Engine, Look, Target
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.engines.registry import ENGINES
from workers.agent.engines.vllm import Vllm
from workers.agent.events import Verdict

SERVE = Serve(engine="llama.cpp", model="m", weights=Weights(path="/w"))
TOKEN = {"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}}
PROPS = {"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}}


def answers(**paths: Any) -> Callable[[httpx.Request], httpx.Response]:
    """A handler by the last part of the path: a status, a JSON body, or an exception."""

    def serve(request: httpx.Request) -> httpx.Response:
        found = paths.get(request.url.path.rpartition("/")[2], 404)
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return httpx.Response(found, json={})
        return httpx.Response(200, text=found) if isinstance(found, str) else httpx.Response(200, json=found)

    return serve


async def look(engine: Engine, *, deep: bool, embeddings: bool = False, **paths: Any) -> Look:
    serve = Serve(**{**vars(SERVE), "embeddings": embeddings})
    async with httpx.AsyncClient(transport=httpx.MockTransport(answers(**paths))) as client:
        return await engine.look(client, Target(port=1, serve=serve, key="k"), deep=deep)


@pytest.mark.parametrize("engine", [LlamaCpp(), Vllm()], ids=lambda engine: engine.kind)
@pytest.mark.parametrize(
    ("health", "verdict"),
    [
        (httpx.ConnectError("refused"), Verdict.LOADING),
        (httpx.ReadTimeout("slow"), Verdict.SILENT),
        (httpx.RemoteProtocolError("broke off"), Verdict.SILENT),
        (503, Verdict.LOADING),
        (200, Verdict.READY),
        (404, Verdict.BROKEN),
        (500, Verdict.BROKEN),
    ],
)
async def test_health(engine: Engine, health: Any, verdict: Verdict) -> None:
    assert (await look(engine, deep=False, health=health)).verdict is verdict


@pytest.mark.parametrize("engine", [LlamaCpp(), Vllm()], ids=lambda engine: engine.kind)
@pytest.mark.parametrize(
    ("completions", "verdict"),
    [
        (TOKEN, Verdict.READY),
        ({"choices": [], "usage": {"completion_tokens": 0}}, Verdict.BROKEN),
        ({}, Verdict.BROKEN),
        ("no JSON", Verdict.BROKEN),
        (503, Verdict.LOADING),
        (401, Verdict.BROKEN),
        (httpx.ReadTimeout("stuck"), Verdict.SILENT),
    ],
)
async def test_only_a_real_token_is_ready(engine: Engine, completions: Any, verdict: Verdict) -> None:
    found = await look(engine, deep=True, health=200, completions=completions, props=PROPS)
    assert found.verdict is verdict


async def test_an_embedding_model_is_asked_for_an_embedding() -> None:
    found = await look(LlamaCpp(), deep=True, embeddings=True, health=200, props=PROPS)
    assert found.verdict is Verdict.BROKEN
    answer = answers(health=200, embeddings={"data": [{"embedding": [0.1]}]}, props=PROPS)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        serve = Serve(**{**vars(SERVE), "embeddings": True})
        found = await LlamaCpp().look(client, Target(port=1, serve=serve, key="k"), deep=True)
    assert (found.verdict, found.context, found.slots) == (Verdict.READY, 2048, 4)


async def test_llama_cpp_tells_its_shape_and_how_many_requests_it_has() -> None:
    found = await look(LlamaCpp(), deep=True, health=200, completions=TOKEN, props=PROPS)
    assert (found.context, found.slots) == (2048, 4)
    metrics = "llamacpp:requests_processing 1\nllamacpp:requests_deferred 2\n"
    assert (await look(LlamaCpp(), deep=False, health=200, metrics=metrics)).in_flight == 3
    stuck = await look(LlamaCpp(), deep=False, health=200, metrics=httpx.ReadTimeout("a long batch"))
    assert (stuck.verdict, stuck.in_flight) == (Verdict.READY, None)


async def test_vllm_tells_its_context_and_counts_over_all_ranks() -> None:
    models = {"data": [{"id": "m", "max_model_len": 8192}]}
    assert (await look(Vllm(), deep=True, health=200, completions=TOKEN, models=models)).context == 8192
    metrics = (
        'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
        'vllm:num_requests_running{engine="1",model_name="m"} 1.0\n'
        'vllm:num_requests_waiting{engine="0",model_name="m"} 4.0\n'
    )
    assert (await look(Vllm(), deep=False, health=200, metrics=metrics)).in_flight == 7
    assert (await look(Vllm(), deep=False, health=200, metrics="# nothing")).in_flight is None


@pytest.mark.parametrize("kind", ENGINES)
def test_no_secret_stands_in_a_command_line(kind: str) -> None:
    engine = ENGINES[kind]
    serve = Serve(**{**vars(SERVE), "weights": Weights(path="/w")})
    made = engine.command(serve, port=1, threads=1)
    assert "k3y" not in " ".join(made.argv)
    assert list(engine.secrets("k3y").values()) == ["k3y"]
    assert engine.kind == kind


def test_an_engine_that_is_not_installed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install" in Vllm().build().problem
    assert LlamaCpp().build().problem == ""
