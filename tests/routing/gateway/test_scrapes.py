"""The figures of a real llama.cpp engine and of the program that stands in for vLLM, as one set of series."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.wire import Serve, Weights
from tests.routing.gateway.real import real_engine
from tests.routing.gateway.rig import SECOND, TINY, local_engine, rig
from tests.routing.gateway.scripted import until
from tests.routing.gateway.vllm import vllm_engine
from tests.tiny import tiny_gguf


@pytest.fixture
async def vllm(tmp_path: Path) -> AsyncIterator[int]:
    """Its port."""
    async with vllm_engine(tmp_path) as port:
        yield port


async def test_both_kinds_of_engines_are_read_and_move_with_each_chat(tmp_path: Path, vllm: int) -> None:
    serve = Serve(engine="llama.cpp", model=TINY, weights=Weights(path=str(tiny_gguf())), context=512, slots=2)
    async with real_engine(serve) as (llama, _), rig(tmp_path, engine_metrics_every=0.05) as gw:
        gw.publish(
            (
                local_engine("rep_1", TINY, llama),
                local_engine("rep_2", SECOND, vllm, engine="vllm", served_name="m"),
            )
        )

        def value(series: str, replica: str) -> float | None:
            labels = {"model": {"rep_1": TINY, "rep_2": SECOND}[replica], "replica": replica}
            return gw.gateway.metrics.registry.get_sample_value(f"llmgw_engine_{series}", labels)

        for replica, model in (("rep_1", TINY), ("rep_2", SECOND)):
            await until(lambda replica=replica: value("metrics_up", replica) == 1, seconds=20)  # type: ignore[misc]
            before = value("generated_tokens_total", replica)
            assert before is not None
            assert (await gw.chat("Hi", model=model, max_tokens=4)).status_code == 200
            await until(lambda replica=replica, before=before: (value("generated_tokens_total", replica) or 0) > before)  # type: ignore[misc]
            await until(lambda replica=replica: value("requests_running", replica) == 0)  # type: ignore[misc]
            assert gw.gateway.flights.scraped[replica].still(asyncio.get_running_loop().time()) is not None
        assert value("kv_cache_used_ratio", "rep_1") is None  # llama.cpp does not tell, and absent is not zero
        assert value("kv_cache_used_ratio", "rep_2") == 0
        assert value("first_token_seconds_sum", "rep_2") == 0.25
