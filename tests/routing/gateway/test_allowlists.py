"""Lists of models at every scope, through a whole gateway: what a key may not use looks like what there is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from cluster.wire import to_dict
from routing.domain.snapshot import AdapterEntry, KeyEntry, ModelEntry, ScopeEntry
from tests.routing.gateway.rig import KEY, NARROW, SECOND, TINY, Rig, ask, key_entry, rig, snapshot
from tests.routing.gateway.scripted import until

CHAT = "/v1/chat/completions"
AHOY = AdapterEntry(name="ahoy", created=7, weights="/srv/ahoy.gguf")
MODELS = (
    ModelEntry(name=TINY, created=1, replicas=("rep_1",), adapters=(AHOY,)),
    ModelEntry(name=SECOND, created=2, replicas=("rep_2",)),
)
_version = iter(range(2, 100))


async def publish(it: Rig, *scopes: ScopeEntry, keys: tuple[KeyEntry, ...]) -> None:
    version = f"e1:{next(_version)}"
    told = to_dict(snapshot(version, models=MODELS, keys=keys, scopes=scopes))
    it.config.snapshot_file.write_bytes(orjson.dumps(told))
    await until(lambda: it.gateway.table.view.version == version)


async def listed(it: Rig, **headers: Any) -> set[str]:
    answer = await it.client.get("/v1/models", headers=headers or None)
    return {item["id"] for item in answer.json()["data"]}


def tree(*lists: tuple[str, ...] | None) -> tuple[ScopeEntry, ...]:
    ids, kinds = ("org_1", "team_1", "proj_1"), ("organisation", "team", "project")
    return tuple(
        ScopeEntry(scope_id=scope_id, kind=kind, name=kind, parent=parent, models=models)
        for scope_id, kind, parent, models in zip(ids, kinds, ("", *ids), lists, strict=False)
    )


async def test_lists_of_all_scopes_and_of_the_key_count_together(tmp_path: Path) -> None:
    every = (key_entry(KEY, "all"), key_entry(NARROW, "narrow", models=(TINY, "ahoy")))
    narrow = {"authorization": f"Bearer {NARROW.text}"}
    async with rig(tmp_path) as it:
        await publish(it, keys=every)
        assert await listed(it) == {TINY, SECOND, "ahoy"}
        await publish(it, *tree((TINY, SECOND), None, None), keys=every)
        assert await listed(it) == {TINY, SECOND}
        assert await listed(it, **narrow) == {TINY}
        await publish(it, *tree((TINY, SECOND), (SECOND,), None), keys=every)
        assert await listed(it) == {SECOND}
        assert await listed(it, **narrow) == set()
        await publish(it, *tree(None, None, ("ahoy",)), keys=every)
        assert await listed(it) == {"ahoy"}, "an adapter is allowed by its own name"


async def test_what_a_scope_does_not_allow_looks_like_what_there_is_not(tmp_path: Path) -> None:
    async with rig(tmp_path) as it:
        await publish(it, *tree((SECOND,), None, None), keys=(key_entry(KEY, "all"),))
        told = []
        for name in (TINY, "ahoy", "absent"):
            for answer in (
                await it.client.post(CHAT, json=ask(model=name)),
                await it.client.post("/v1/completions", json={"model": name, "prompt": "x"}),
                await it.client.get(f"/v1/models/{name}"),
            ):
                assert answer.status_code == 404
                kept = {header for header in answer.headers if header not in ("x-request-id", "date")}
                told.append((answer.text.replace(name, "X"), frozenset(kept)))
        assert len(set(told)) == 1
        assert not it.engine.requests
        assert (await it.chat(model=SECOND)).status_code == 200
