"""What the gateway asks its own engines, and what it does with the answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.gateway import engines as module
from tests.routing.gateway.rig import TINY, local_engine, rig, until

FACTS = '{"data":[{"id":"inside","meta":{"n_params":5,"n_ctx_train":2048},"owned_by":"somebody"}]}'
BUSY = "llamacpp:requests_processing 3\nllamacpp:requests_deferred 1\n"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK", "OFTEN", "AGAIN"):
        monkeypatch.setattr(module, name, 0.05)


async def test_the_list_of_models_keeps_what_engines_say(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
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
        assert "/metrics" not in gw.engine.questions  # there is nothing to choose


async def test_a_replica_whose_engine_has_more_requests_is_avoided(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw, rig(tmp_path / "other") as other:
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


async def test_an_engine_that_says_nothing_serves_all_the_same(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        gw.engine.says["/v1/models"] = "x" * (module.MOST + 1)
        await until(lambda: len(gw.engine.questions) > 3)
        assert gw.gateway.engines.facts == {}
        assert (await gw.chat()).status_code == 200
        assert not gw.gateway.flights.suspects
