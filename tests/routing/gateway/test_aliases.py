"""A name that stands for several models, through whole gateways: who answers, who is told, what is counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.wire import LocalAdapter, to_dict
from llmgw_site.lib.config import Config
from routing.domain.endpoints import ENDPOINTS
from routing.domain.snapshot import (
    AdapterEntry,
    AliasEntry,
    BudgetEntry,
    LimitEntry,
    ModelEntry,
    PriceEntry,
    Snapshot,
    TargetEntry,
)
from tests.routing.gateway.hops import many
from tests.routing.gateway.rig import (
    COLD,
    KEY,
    NARROW,
    OFF,
    SECOND,
    TINY,
    VECTORS,
    key_entry,
    local_engine,
    rig,
    snapshot,
)
from tests.routing.gateway.scripted import until
from tests.routing.gateway.test_uploads import FILE, KIND, form, part

AHOY = AdapterEntry(name="ahoy", created=7, weights="/srv/ahoy.gguf")
PRICE = PriceEntry(input=1_000_000, output=2_000_000, currency="EUR")
MODELS = (
    ModelEntry(name=TINY, created=1, replicas=("rep_1",), context=4096, adapters=(AHOY,)),
    ModelEntry(name=SECOND, created=2, replicas=("rep_2",), context=2048, price=PRICE),
    ModelEntry(name=VECTORS, created=3, replicas=("rep_3",), embeddings=True),
    ModelEntry(name=OFF, created=4, enabled=False),
    ModelEntry(name=COLD, created=5, replicas=("rep_5",), fallbacks=(TINY,)),
)


def alias(name: str, **weights: int) -> AliasEntry:
    return AliasEntry(
        name=name,
        created=9,
        targets=tuple(TargetEntry(model=model, weight=weight) for model, weight in weights.items()),
    )


ALIASES = (
    alias("chat", **{TINY: 50, SECOND: 50}),
    alias("second", **{SECOND: 1}),
    alias("canary", **{COLD: 1}),
    alias("half-off", **{OFF: 1, TINY: 1}),
    alias("resting", **{OFF: 1}),
    alias("pirate", ahoy=1),
    alias("embed", **{VECTORS: 1, TINY: 1}),
)


def catalogue(**other: Any) -> Snapshot:
    return snapshot(**{"models": MODELS, "aliases": ALIASES, **other})


def prepared(config: Config) -> None:
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(catalogue())))


async def test_a_conversation_stays_with_one_target_and_all_of_them_make_the_split(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        gw.gateway.peers.session = lambda key_id, explicit, body: (explicit or b"").decode()  # type: ignore[method-assign]
        found: dict[str, str] = {}
        for turn in range(2):
            for number in range(30):
                answer = await gw.client.post(
                    "/v1/chat/completions",
                    headers={"x-session-id": f"conversation {number}"},
                    json={"model": "chat", "messages": [{"role": "user", "content": f"turn {turn}"}]},
                )
                assert answer.status_code == 200
                served = answer.headers["x-llmgw-model"]
                assert gw.engine.last.json["model"] == {TINY: TINY, SECOND: "second-inside"}[served]
                assert found.setdefault(f"conversation {number}", served) == served
        shares = Counter(found.values())
        assert min(shares[TINY], shares[SECOND]) >= 3
        records = gw.records()
        assert {(record.model_asked, record.alias_target == record.model_served) for record in records} == {
            ("chat", True)
        }


async def test_nothing_but_the_name_changes_in_the_body_and_the_price_is_of_who_served(tmp_path: Path) -> None:
    body = b'{ "model" : "second", "messages": [{"role": "user", "content": "hi"}] , "x_unknown": 1.0 }'
    async with rig(tmp_path, prepare=prepared) as gw:
        answer = await gw.client.post("/v1/chat/completions", content=body)
        assert gw.engine.last.body == body.replace(b'"second"', b'"second-inside"')
        record = await gw.record()
        assert (record.model_asked, record.alias_target, record.model_served) == ("second", SECOND, SECOND)
        assert record.cost is not None
        assert answer.headers["x-llmgw-cost"].endswith(" EUR")
        opened = gw.records("open")[0]
        assert (opened.model_asked, opened.alias_target) == ("second", SECOND)


async def test_where_the_target_cannot_its_fallbacks_answer(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        answer = await gw.chat(model="canary")
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY)
        record = await gw.record()
        assert (record.model_asked, record.alias_target, record.model_served) == ("canary", COLD, TINY)
        gw.publish(())
        await until(lambda: not gw.gateway.table.view.routes[TINY].seats)
        answer = await gw.chat(model="canary")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert f"'{COLD}'" in answer.json()["error"]["message"]
        assert "x-llmgw-model" not in answer.headers
        record = await gw.record(2)
        assert (record.model_asked, record.alias_target, record.model_served) == ("canary", COLD, "")


async def test_a_disabled_target_has_no_share_and_where_it_is_the_only_one_the_client_is_told(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        for _ in range(12):
            assert (await gw.chat(model="half-off")).headers["x-llmgw-model"] == TINY
        answer = await gw.chat(model="resting")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_disabled")
        answer = await gw.client.get("/v1/models/resting")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_disabled")


async def test_an_alias_may_stand_for_an_adapter(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        held = (LocalAdapter(name="ahoy", weights=AHOY.weights, id=0),)
        gw.publish((local_engine("rep_1", TINY, gw.engine.port, adapters=held),))
        await until(lambda: gw.gateway.table.view.routes["ahoy"].seats)
        answer = await gw.chat(model="pirate")
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, "ahoy")
        assert gw.engine.last.json["lora"] == [{"id": 0, "scale": 1.0}]
        record = await gw.record()
        assert (record.model_asked, record.alias_target, record.model_served) == ("pirate", "ahoy", TINY)


async def test_lists_count_for_what_an_alias_stands_for_and_one_that_leads_nowhere_is_not_there(tmp_path: Path) -> None:
    async with rig(tmp_path, prepare=prepared) as gw:
        gw.client.headers["authorization"] = f"Bearer {NARROW.text}"  # may use `tiny`
        for _ in range(12):
            assert (await gw.chat(model="chat")).headers["x-llmgw-model"] == TINY
        listed = {item["id"]: item for item in (await gw.client.get("/v1/models")).json()["data"]}
        assert listed.keys() == {TINY, "chat", "half-off", "embed"}
        assert listed["chat"]["context_length"] == 4096
        assert (await gw.client.get("/v1/models/chat")).json() == listed["chat"]
        told = []
        for name in ("second", "pirate", "absent"):
            for answer in (await gw.chat(model=name), await gw.client.get(f"/v1/models/{name}")):
                assert answer.status_code == 404
                kept = {header for header in answer.headers if header not in ("x-request-id", "date")}
                told.append((answer.text.replace(name, "X"), frozenset(kept)))
        assert len(set(told)) == 1


async def test_a_list_with_the_alias_allows_its_targets_by_that_name_only(tmp_path: Path) -> None:
    def only_chat(config: Config) -> None:
        keys = (key_entry(KEY, "all", models=("chat", "canary")),)
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(catalogue(keys=keys))))

    async with rig(tmp_path, prepare=only_chat) as gw:
        assert {(await gw.chat(model="chat")).headers["x-llmgw-model"] for _ in range(25)} == {TINY, SECOND}
        assert {item["id"] for item in (await gw.client.get("/v1/models")).json()["data"]} >= {"chat"}
        assert (await gw.chat(model=TINY)).status_code == 404
        answer = await gw.chat(model="canary")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready"), "not its fallbacks"


async def test_limits_and_budgets_are_of_the_key_and_of_who_serves(tmp_path: Path) -> None:
    spent = BudgetEntry(budget_id="b", period="day", amount=10, spent=10, resets_at=4e9, currency="EUR")
    limit = LimitEntry(requests_per_minute=1)

    def bounded(config: Config) -> None:
        keys = (key_entry(KEY, "all", budgets=(spent,)), key_entry(NARROW, "narrow", limit=limit))
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(catalogue(keys=keys))))

    async with rig(tmp_path, prepare=bounded) as gw:
        answer = await gw.chat(model="second")
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "budget_spent")
        for _ in range(12):
            assert (await gw.chat(model="chat")).headers["x-llmgw-model"] == TINY, "it has no price"
        gw.client.headers["authorization"] = f"Bearer {NARROW.text}"
        answers = [await gw.chat(model="chat") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 429]
        assert answers[0].headers["x-ratelimit-remaining-requests"] == "0"


BODIES: dict[str, dict[str, Any]] = {
    "completions": {"prompt": "hi"},
    "embeddings": {"input": "hi"},
    "rerank": {"query": "hi", "documents": ["a"]},
    "tokenize": {"content": "hi"},
    "detokenize": {"tokens": [1]},
    "audio.speech": {"input": "hi", "voice": "x"},
    "images.generations": {"prompt": "hi"},
    "responses": {"input": "hi"},
}
CHATTY = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8}


@pytest.mark.parametrize("name", list(ENDPOINTS))
async def test_every_endpoint_takes_an_alias(tmp_path: Path, name: str) -> None:
    endpoint = ENDPOINTS[name]
    wanted = "embed" if endpoint.embeddings else "second"
    async with rig(tmp_path, prepare=prepared) as gw:
        if endpoint.form:
            content = form(part("language", b"en"), part("model", wanted.encode()), FILE)
            answer = await gw.client.post(endpoint.path, content=content, headers=KIND)
            expected = form(part("language", b"en"), part("model", b"second-inside"), FILE)
            assert gw.engine.last.body == expected
        else:
            answer = await gw.client.post(endpoint.path, json={"model": wanted, **BODIES.get(name, CHATTY)})
            assert gw.engine.last.json["model"] == (VECTORS if endpoint.embeddings else "second-inside")
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-llmgw-model"] == (VECTORS if endpoint.embeddings else SECOND)
        record = await gw.record()
        assert (record.model_asked, record.outcome) == (wanted, "ok")
        assert json.loads(json.dumps(to_dict(record)))["alias_target"] == record.model_served


@pytest.mark.parametrize("knows", [True, False])
async def test_an_edge_that_is_not_the_owner_picks_and_nodes_behind_it_see_the_target(
    tmp_path: Path, knows: bool
) -> None:
    """Nodes behind the edge need not know the alias at all, as older ones do not."""
    async with many(tmp_path) as town:
        town.models = [ModelEntry(name=TINY, created=1), ModelEntry(name="other", created=2)]
        town.aliases = (
            AliasEntry(name="chat", created=3, targets=(TargetEntry(model=TINY), TargetEntry(model="other"))),
        )
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY, "other"))
        await town.settle()
        if not knows:
            for site in (router, worker):
                site.gateway.table.view.aliases.clear()
        served = set()
        for number in range(25):
            answer = await edge.chat(f"hello {number}", model="chat")
            assert answer.status_code == 200
            served.add(answer.headers["x-llmgw-model"])
            assert worker.engine.last.json["model"] == answer.headers["x-llmgw-model"]
        assert served == {TINY, "other"}
        records = edge.records()
        assert {(record.model_asked, record.node_id) for record in records} == {("chat", worker.node_id)}
        assert all(record.alias_target == record.model_served for record in records)
        await town.idle()
