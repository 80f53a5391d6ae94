"""What the gateway asks its own engines, and what it does with the answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from routing.gateway import engines as module
from tests.fakes.pages import VLLM
from tests.routing.gateway.rig import SECOND, TINY, local_engine, rig, until

FACTS = '{"data":[{"id":"inside","meta":{"n_params":5,"n_ctx_train":2048},"owned_by":"somebody"}]}'
BUSY = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n"
FIGURES = VLLM.decode()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN", 0.05)


async def test_the_list_of_models_keeps_what_engines_say(tmp_path: Path) -> None:
    async with rig(tmp_path, engine_metrics_every=0.05) as gw:
        gw.engine.says["/v1/models"] = FACTS
        await until(lambda: len(gw.gateway.engines.facts) == 3)
        asked = gw.engine.questions.count("/v1/models")
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, context=1024),))
        await until(lambda: list(gw.gateway.engines.facts) == ["rep_1"])
        shown = {item["id"]: item for item in (await gw.client.get("/v1/models")).json()["data"]}
        assert shown[TINY] == {
            "id": TINY, "object": "model", "created": 1, "owned_by": "llmgw",
            "meta": {"n_params": 5, "n_ctx_train": 2048}, "context_length": 1024,
        }  # fmt: skip
        assert gw.engine.questions.count("/v1/models") <= asked + 1  # each replica once, and the one that has changed


async def test_a_replica_whose_engine_has_more_requests_is_avoided(tmp_path: Path) -> None:
    async with rig(tmp_path, engine_metrics_every=0.05) as gw, rig(tmp_path / "other") as other:
        other.engine.says["/metrics"] = BUSY
        gw.publish((local_engine("rep_1", TINY, gw.engine.port), local_engine("rep_1b", TINY, other.engine.port)))
        await until(lambda: gw.gateway.flights.foreign == {"rep_1b": 4})
        for _ in range(6):
            assert (await gw.chat()).status_code == 200
        assert (len(gw.engine.requests), len(other.engine.requests)) == (6, 0)
        other.engine.says["/metrics"] = BUSY.replace("3", "0").replace("1\n", "0\n")
        await until(lambda: not gw.gateway.flights.foreign)
        other.engine.says["/metrics"] = BUSY
        await until(lambda: bool(gw.gateway.flights.foreign))
        other.engine.says["/metrics"] = None  # what is not known does not count
        await until(lambda: not gw.gateway.flights.foreign)


async def test_a_replica_whose_engine_has_requests_in_its_own_queue_is_full_whatever_its_slots(tmp_path: Path) -> None:
    """As vLLM when its cache is full: 3 run and 1 waits, of 64 slots."""
    async with rig(tmp_path, engine_metrics_every=0.05) as gw, rig(tmp_path / "other") as other:
        gw.engine.says["/metrics"] = BUSY.replace("3", "5").replace("deferred 1", "deferred 0")
        other.engine.says["/metrics"] = BUSY
        engines = [("rep_1", gw.engine.port), ("rep_1b", other.engine.port)]
        gw.publish(tuple(local_engine(name, TINY, port, slots=64) for name, port in engines))
        await until(lambda: gw.gateway.flights.foreign == {"rep_1": 5, "rep_1b": 4})
        assert gw.gateway.flights.full == {"rep_1b": 3}
        for _ in range(6):
            assert (await gw.chat()).status_code == 200
        assert (len(gw.engine.requests), len(other.engine.requests)) == (6, 0)
        other.engine.says["/metrics"] = None
        await until(lambda: not gw.gateway.flights.full)


async def test_what_waits_in_an_engine_and_whether_it_computes_is_told_to_the_agent(tmp_path: Path) -> None:
    async with rig(tmp_path, engine_metrics_every=0.05) as gw:
        now = asyncio.get_running_loop().time
        gw.engine.says["/metrics"] = BUSY + "llamacpp:n_decode_total 5\n"
        await until(lambda: gw.gateway.flights.report(now()).replicas["rep_1"].waiting == 1)
        await until(lambda: (gw.gateway.flights.report(now()).replicas["rep_1"].still_for or 0.0) >= 0.2)
        gw.engine.says["/metrics"] = BUSY + "llamacpp:n_decode_total 6\n"
        await until(lambda: gw.gateway.flights.report(now()).replicas["rep_1"].still_for == 0.0)
        gw.engine.says["/metrics"] = None
        await until(lambda: gw.gateway.flights.report(now()).replicas["rep_1"].waiting is None)
        assert gw.gateway.flights.report(now()).replicas["rep_1"].still_for is not None


async def test_f57_an_engines_own_figures_are_series_and_go_with_their_replica(tmp_path: Path) -> None:
    async with rig(tmp_path, engine_metrics_every=0.05) as gw:
        gw.engine.says["/metrics"] = FIGURES
        value = gw.gateway.metrics.registry.get_sample_value
        labels = {"model": TINY, "replica": "rep_1"}
        await until(lambda: value("llmgw_engine_metrics_up", labels) == 1)
        assert value("llmgw_engine_requests_running", labels) == 5
        assert value("llmgw_engine_requests_waiting", labels) == 2
        assert value("llmgw_engine_kv_cache_used_ratio", labels) == 0.75
        assert value("llmgw_engine_prompt_tokens_total", labels) == 111
        assert value("llmgw_engine_first_token_seconds_count", labels) == 4
        assert value("llmgw_engine_queue_seconds_count", labels) is None  # it does not say
        gw.engine.says["/metrics"] = None
        await until(lambda: value("llmgw_engine_metrics_up", labels) == 0)
        assert value("llmgw_engine_requests_running", labels) is None  # not known is not zero
        gw.engine.says["/metrics"] = FIGURES
        await until(lambda: value("llmgw_engine_requests_running", labels) == 5)
        gw.publish((local_engine("rep_2", SECOND, gw.engine.port),))
        await until(lambda: "rep_1" not in gw.gateway.flights.replicas)
        assert value("llmgw_engine_metrics_up", labels) is None  # at once, not at the next scrape
        await until(lambda: list(gw.gateway.flights.scraped) == ["rep_2"])


async def test_an_engine_that_says_nothing_serves_all_the_same(tmp_path: Path) -> None:
    async with rig(tmp_path, engine_metrics_every=0.05) as gw:
        gw.engine.says["/v1/models"] = "x" * (module.MOST + 1)
        await until(lambda: len(gw.engine.questions) > 3)
        assert gw.gateway.engines.facts == {}
        assert (await gw.chat()).status_code == 200
        assert not gw.gateway.flights.suspects
