"""Adapters through a whole gateway: listed and allowed by their own names, answered by the real engine of their model."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from catalog.domain import keys
from cluster.wire import AdapterFile, EnginesFile, LocalAdapter, Serve, Weights, to_dict
from llmgw_site.lib.files import write_json
from routing.domain.snapshot import AdapterEntry, ModelEntry
from routing.gateway import activation
from routing.gateway.engines import Engines
from routing.gateway.table import View
from tests.fakes.scripted_engine import ScriptedEngine
from tests.routing.gateway.controllers import Controller
from tests.routing.gateway.hops import many
from tests.routing.gateway.real import real_engine
from tests.routing.gateway.rig import ENGINE_KEY, KEY, TINY, Rig, ask, key_entry, local_engine, rig, snapshot
from tests.routing.gateway.scripted import until
from tests.tiny import TEXT, make_tiny_gguf

AHOY, BONJOUR = "Ahoy from the first adapter of them.", "Bonjour dit le second adaptateur."
ONLY = keys.make(keys.KEY_PREFIX, entropy=b"o" * 32)  # may use the adapter `ahoy` and not its model
LATE = AdapterEntry(name="late", created=9, weights="/srv/late.gguf")


def adapter(name: str, path: Path | str = "", scale: float = 1.0) -> AdapterEntry:
    return AdapterEntry(name=name, created=7, weights=str(path or f"/srv/{name}.gguf"), scale=scale)


def publish(it: Rig, *adapters: AdapterEntry) -> None:
    model = ModelEntry(name=TINY, created=1, replicas=("rep_1",), adapters=adapters)
    entries = (key_entry(KEY, "all"), key_entry(ONLY, "only", models=("ahoy",)))
    it.config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot("e1:2", models=(model,), keys=entries))))


async def taken(it: Rig, port: int) -> None:
    """The gateway has the snapshot and the engine at this port."""

    def there() -> bool:
        view = it.gateway.table.view
        return view.version == "e1:2" and [seat.port for seat in view.routes[TINY].seats] == [port]

    await until(there)


async def test_an_adapter_is_listed_and_allowed_by_its_own_name_and_reaches_its_model_s_engine(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        publish(it, adapter("ahoy"), LATE)
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=4),)
        it.publish((local_engine("rep_1", TINY, it.engine.port, adapters=held),))
        await taken(it, it.engine.port)
        listed = {item["id"]: item for item in (await it.client.get("/v1/models")).json()["data"]}
        assert set(listed) == {TINY, "ahoy", "late"}
        assert listed["ahoy"]["parent"] == TINY
        assert "parent" not in listed[TINY]
        assert (await it.chat(model="ahoy")).status_code == 200
        assert it.engine.last.json["lora"] == [{"id": 4, "scale": 1.0}]
        record = await it.record()
        assert (record.model_asked, record.model_served, record.replica_id) == ("ahoy", TINY, "rep_1")
        assert (await it.chat()).status_code == 200
        assert "lora" not in it.engine.last.json
        assert (await it.chat(lora=[{"id": 4, "scale": 1}])).status_code == 200
        assert it.engine.last.json["lora"] == [{"id": 0, "scale": 0.0}]
        bearer = {"authorization": f"Bearer {ONLY.text}"}
        assert (await it.client.post("/v1/chat/completions", json=ask(model="ahoy"), headers=bearer)).status_code == 200
        refused = await it.client.post("/v1/chat/completions", json=ask(), headers=bearer)
        assert (refused.status_code, refused.json()["error"]["code"]) == (404, "model_not_found")
        only = (await it.client.get("/v1/models", headers=bearer)).json()["data"]
        assert [item["id"] for item in only] == ["ahoy"]


async def test_an_adapter_that_no_engine_has_loaded_yet_says_so_and_its_model_answers(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        publish(it, LATE)
        it.publish((local_engine("rep_1", TINY, it.engine.port),))
        await taken(it, it.engine.port)
        refused = await it.chat(model="late")
        assert refused.status_code == 503
        error = refused.json()["error"]
        assert (error["code"], error["reason"]) == ("model_not_ready", "adapter_not_loaded")
        assert "'late'" in error["message"]
        assert refused.headers["retry-after"]
        assert (await it.chat()).status_code == 200


async def test_an_engine_with_adapters_is_asked_once_what_its_model_is(tmp_path: Path) -> None:
    async with rig(tmp_path) as it, ScriptedEngine() as engine:
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=4),)
        view = View(engines=(local_engine("rep_1", TINY, engine.port, adapters=held),))
        engines = Engines(it.gateway.upstream, it.gateway.flights, view=lambda: view, every=9.0)
        engines.look()
        await until(lambda: sorted(engine.questions) == ["/metrics", "/v1/models"])
        engines.look()
        await asyncio.sleep(0.1)
        assert sorted(engine.questions) == ["/metrics", "/v1/models"]


def said(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


async def test_answers_of_the_real_engine_differ_by_adapter_and_are_the_model_s_own_without(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the engine of this platform's wheel")
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    base = make_tiny_gguf(tmp_path / "base.gguf", loras=[(first, AHOY), (second, BONJOUR)])
    alone = Serve(engine="llama.cpp", model=TINY, weights=Weights(path=str(base)), context=256, slots=2)
    files = [
        AdapterFile(name=name, weights=Weights(path=str(path))) for name, path in (("second", second), ("ahoy", first))
    ]
    with_both = Serve(**{**vars(alone), "adapters": tuple(files)})
    plain: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
    async with rig(tmp_path) as it:
        publish(it, adapter("ahoy", first), adapter("second", second), adapter("faint", second, scale=0.01))
        async with real_engine(alone) as (port, held):
            assert held == ()
            it.publish((local_engine("rep_1", TINY, port, served_name=TINY),))
            await taken(it, port)
            without = said(await it.chat("hi", **plain))
        async with real_engine(with_both) as (port, held):
            assert {item.name: item.id for item in held} == {"second": 0, "ahoy": 1}
            it.publish((local_engine("rep_1", TINY, port, served_name=TINY, adapters=held),))
            await taken(it, port)
            asked = [it.chat("hi", model=name, **plain) for name in ("ahoy", "second", TINY, "ahoy", TINY, "second")]
            at_once = [said(answer) for answer in await asyncio.gather(*asked)]
            sly = said(await it.chat("hi", lora=[{"id": 0, "scale": 1.0}], **plain))
    assert without == TEXT
    assert at_once == [AHOY, BONJOUR, TEXT, AHOY, TEXT, BONJOUR]
    assert sly == TEXT


async def test_an_adapter_is_passed_on_by_its_name_and_applied_where_its_model_runs(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models[0] = ModelEntry(name=TINY, created=1, adapters=(adapter("ahoy"),))
        edge = await town.start("edge", "edge")
        router = await town.start("router", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        await town.settle()
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=2),)
        engine = local_engine(f"rep_worker_{TINY}", TINY, worker.engine.port, adapters=held)
        write_json(worker.node.config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=(engine,))))
        await until(lambda: bool(worker.gateway.table.view.routes["ahoy"].seats))
        answer = await edge.chat(model="ahoy", lora=[{"id": 9, "scale": 1}])
        assert answer.status_code == 200, answer.text
        assert worker.engine.last.json["lora"] == [{"id": 2, "scale": 1.0}]
        record = await edge.record()
        assert (record.model_asked, record.model_served) == ("ahoy", TINY)
        assert (record.node_id, record.replica_id) == (worker.node_id, f"rep_worker_{TINY}")
        assert router.gateway.peers.in_flight == {}
        await town.idle()


async def test_of_several_nodes_one_that_says_it_has_loaded_the_adapter_is_asked(tmp_path: Path) -> None:
    async with many(tmp_path) as town:
        town.models[0] = ModelEntry(name=TINY, created=1, adapters=(adapter("ahoy"),))
        town.polls = True
        front = await town.start("front", "edge", "router", peers_refresh=0.2)
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=0),)
        workers = [await town.start(f"worker{n}", "inference", serves=(TINY,)) for n in range(3)]
        await town.settle()
        last = workers[-1]
        engine = local_engine(f"rep_worker2_{TINY}", TINY, last.engine.port, adapters=held)
        write_json(last.node.config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=(engine,))))
        await until(lambda: bool(last.gateway.table.view.routes["ahoy"].seats))

        def known() -> bool:
            found = front.gateway.peers.standings.get(last.node_id)
            offer = (found.offers or {}).get("ahoy") if found is not None else None
            return offer is not None and offer.serving_state == "ready"

        await until(known)
        answers = [(await front.chat(model="ahoy")).status_code for _ in range(12)]
        assert answers == [200] * 12
        assert (last.asked, workers[0].asked, workers[1].asked) == (12, 0, 0)


async def test_a_request_for_an_adapter_brings_its_model_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "POLL", 0.05)
    monkeypatch.setattr(activation, "LOOK", 0.01)
    async with many(tmp_path) as town:
        rest = ModelEntry(name=TINY, created=1, on_demand=True, code="model_at_rest", reason="tiny is at rest")
        town.models = [replace(rest, adapters=(adapter("ahoy"),))]
        front = await town.start("front", "edge", "router", "inference")
        brain = Controller(town)
        await town.scripted("brain", "controller", handler=brain)
        await town.settle()
        asking = asyncio.ensure_future(front.chat(model="ahoy"))
        await until(lambda: brain.orders)
        assert brain.orders[0]["model"] == TINY
        held = (LocalAdapter(name="ahoy", weights="/srv/ahoy.gguf", id=0),)
        engine = local_engine(f"rep_front_{TINY}", TINY, front.engine.port, adapters=held)
        write_json(front.node.config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=(engine,))))
        answer = await asking
        assert answer.status_code == 200, answer.text
        assert front.engine.last.json["lora"] == [{"id": 0, "scale": 1.0}]
        await town.idle()


async def test_f15_what_is_recorded_of_a_model_and_its_adapters_is_what_the_engine_counted(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="the engine of this platform's wheel")
    first = tmp_path / "first.gguf"
    base = make_tiny_gguf(tmp_path / "base.gguf", loras=[(first, AHOY)])
    files = (AdapterFile(name="ahoy", weights=Weights(path=str(first))),)
    serve = Serve(
        engine="llama.cpp", model=TINY, weights=Weights(path=str(base)), context=256, slots=2, adapters=files
    )  # fmt: skip
    async with rig(tmp_path) as it:
        publish(it, adapter("ahoy", first))
        async with real_engine(serve) as (port, held), httpx.AsyncClient(timeout=60) as client:
            it.publish((local_engine("rep_1", TINY, port, served_name=TINY, adapters=held),))
            await taken(it, port)

            async def counted() -> tuple[int, int]:
                headers = {"authorization": f"Bearer {ENGINE_KEY}"}
                text = (await client.get(f"http://127.0.0.1:{port}/metrics", headers=headers)).text
                names = ("llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total")
                lines = dict(line.split(" ") for line in text.splitlines() if line.startswith(names))
                return int(lines[names[0]]), int(lines[names[1]])

            before = await counted()
            for name in (TINY, "ahoy", TINY, "ahoy"):
                for stream in (False, True):
                    fields: dict[str, Any] = {
                        "temperature": 0,
                        "max_tokens": 40,
                        "cache_prompt": False,
                        "stream": stream,
                    }
                    answer = await it.chat("hi", model=name, **fields)
                    assert answer.status_code == 200
            await it.idle()
            await until(lambda: len(it.records()) == 8)
            after = await counted()
    records = it.records()
    assert {(item.model_asked, item.model_served) for item in records} == {(TINY, TINY), ("ahoy", TINY)}
    assert sum(item.prompt_tokens for item in records) == after[0] - before[0]
    assert sum(item.completion_tokens for item in records) == after[1] - before[1]
