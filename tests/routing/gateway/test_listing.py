"""GET /v1/models: what engines add to their own list is kept; Anthropic's clients have it as they know it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import anthropic
import pytest

from routing.gateway import engines
from tests.routing.gateway.rig import COLD, KEY, NARROW, SECOND, TINY, VECTORS, rig
from tests.routing.gateway.scripted import until


async def test_f55_what_an_engine_says_of_its_model_is_kept_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "AGAIN", 0.05)
    said = {"id": "inside", "max_model_len": 4096, "root": "/srv/secret", "meta": {"n_params": 7, "n_vocab": 512}}
    async with rig(tmp_path) as gw:
        gw.engine.says["/v1/models"] = json.dumps({"object": "list", "data": [said]})
        gw.gateway.engines.facts.clear()
        await until(lambda: gw.gateway.engines.facts.get("rep_1"))
        shown = (await gw.client.get(f"/v1/models/{TINY}")).json()
        listed = {item["id"]: item for item in (await gw.client.get("/v1/models")).json()["data"]}
        assert listed[TINY] == shown
        assert (shown["id"], shown["max_model_len"], shown["meta"]) == (TINY, 4096, {"n_params": 7, "n_vocab": 512})
        assert "secret" not in json.dumps(listed)  # paths of the machine are the engine's own


async def test_anthropic_s_clients_get_the_list_as_they_know_it_in_pages(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        async with anthropic.AsyncAnthropic(base_url=gw.url, api_key=KEY.text, max_retries=0) as client:
            page = await client.models.list(limit=2)
            assert [model.id for model in page.data] == [COLD, VECTORS]  # the newest first
            assert (page.has_more, page.first_id, page.last_id) == (True, COLD, VECTORS)
            found = [model async for model in client.models.list(limit=1)]
            assert [model.id for model in found] == [COLD, VECTORS, SECOND, TINY]
            assert {(model.type, model.lifecycle) for model in found} == {("model", "active")}
            assert found[-1].created_at == datetime.fromtimestamp(1, tz=UTC)
            back = [model.id async for model in client.models.list(limit=1, before_id=TINY)]
            assert back == [SECOND, VECTORS, COLD]
            one = await client.models.retrieve(SECOND)
            assert (one.id, one.display_name) == (SECOND, SECOND)
            with pytest.raises(anthropic.NotFoundError) as missing:
                await client.models.retrieve("absent")
            assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index,call-overload]
            for wrong in ({"limit": 0}, {"limit": 1001}, {"after_id": "absent"}):
                with pytest.raises(anthropic.BadRequestError):
                    await client.models.list(**wrong)  # type: ignore[arg-type]
        async with anthropic.AsyncAnthropic(base_url=gw.url, api_key=NARROW.text, max_retries=0) as client:
            assert [model.id async for model in client.models.list()] == [TINY]
        async with anthropic.AsyncAnthropic(base_url=gw.url, api_key="sk-wrong", max_retries=0) as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.models.list()
        plain = await gw.client.get("/v1/models")
        assert plain.json()["object"] == "list"
