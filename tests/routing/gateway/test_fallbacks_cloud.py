"""External providers among the fallbacks: they answer for a model of ours, and a model of ours for them, before anybody accepted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.domain.modules import Module
from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from routing.domain.snapshot import External, ModelEntry
from tests.fakes.provider import Provider
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, THEIRS, cloud_rig, provider_entry
from tests.routing.gateway.hops import closed_port
from tests.routing.gateway.rig import COLD, TINY, Rig, snapshot

MODULES = (Module.EDGE, Module.ROUTER, Module.INFERENCE, Module.CLOUD)
ENTRIES = (
    ModelEntry(name=TINY, created=1, replicas=("rep_1",)),
    ModelEntry(name=COLD, created=2, replicas=("rep_5",), fallbacks=(OURS,)),
    ModelEntry(name=OURS, created=3, external=External(provider_id="prov_1", model=THEIRS), fallbacks=(TINY,)),
)


@asynccontextmanager
async def gateway(folder: Path, url: str) -> AsyncIterator[Rig]:
    entry = provider_entry(url)

    def prepare(config: Config) -> None:
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot("e1:2.c", models=ENTRIES, providers=(entry,)))))

    async with cloud_rig(folder, entry, modules=MODULES, prepare=prepare) as gw:
        yield gw


@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_answers_for_a_model_that_is_not_ready_and_the_answer_says_so(
    tmp_path: Path, stream: bool
) -> None:
    async with Provider(key=PROVIDER_KEY, model=THEIRS) as provider, gateway(tmp_path, provider.url) as gw:
        answer = await gw.chat(model=COLD, stream=stream)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, OURS)
        assert (provider.last.json["model"], provider.wrong) == (THEIRS, [])
        record = await gw.record()
        assert (record.model_asked, record.model_served, record.outcome) == (COLD, OURS, "ok")
        assert (record.prompt_tokens, record.completion_tokens, record.estimated) == (7, 3, False)
        assert not gw.engine.requests
        await gw.idle()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_of_ours_answers_for_a_provider_that_cannot_be_reached(tmp_path: Path, stream: bool) -> None:
    async with gateway(tmp_path, f"http://127.0.0.1:{closed_port()}/v1") as gw:
        answer = await gw.chat(model=OURS, stream=stream)
        assert (answer.status_code, answer.headers["x-llmgw-model"]) == (200, TINY)
        record = await gw.record()
        assert (record.model_asked, record.model_served, record.outcome) == (OURS, TINY, "ok")
        assert len(gw.engine.requests) == 1
        await gw.idle()


@pytest.mark.parametrize(
    ("script", "status"), [({"status": 503}, 503), ({"status": 429, "body": "{}"}, 429), ({"reset": True}, 502)]
)
async def test_f26_what_a_provider_has_accepted_is_sent_to_nobody_else(
    tmp_path: Path, script: dict[str, Any], status: int
) -> None:
    async with Provider(key=PROVIDER_KEY, model=THEIRS) as provider, gateway(tmp_path, provider.url) as gw:
        answer = await gw.chat(script, model=OURS)
        assert answer.status_code == status
        assert "x-llmgw-model" not in answer.headers
        assert (len(provider.requests), len(gw.engine.requests)) == (1, 0)
        record = await gw.record()
        assert (record.model_served, record.outcome) == (OURS, "failed")
        await gw.idle()
