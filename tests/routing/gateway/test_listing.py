"""GET /v1/models: what engines add to their own list is kept."""

from __future__ import annotations

import json
from pathlib import Path

from tests.routing.gateway.rig import TINY, rig
from tests.routing.gateway.scripted import until


async def test_f55_what_an_engine_says_of_its_model_is_kept_in_the_list(tmp_path: Path) -> None:
    said = {"id": "inside", "max_model_len": 4096, "root": "/srv/secret", "meta": {"n_params": 7, "n_vocab": 512}}
    async with rig(tmp_path) as gw:
        gw.engine.says["/v1/models"] = json.dumps({"object": "list", "data": [said]})
        gw.gateway.engines.facts.clear()
        await until(lambda: gw.gateway.engines.facts.get("rep_1"), seconds=20)
        shown = (await gw.client.get(f"/v1/models/{TINY}")).json()
        listed = {item["id"]: item for item in (await gw.client.get("/v1/models")).json()["data"]}
        assert listed[TINY] == shown
        assert (shown["id"], shown["max_model_len"], shown["meta"]) == (TINY, 4096, {"n_params": 7, "n_vocab": 512})
        assert "secret" not in json.dumps(listed)  # paths of the machine are the engine's own
