"""External models across nodes: edge and router pass the request on, only the cloud node speaks to the provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from cluster.domain import signing
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.files import write_json
from routing.domain.snapshot import External, ModelEntry, Snapshot
from tests.fakes.provider import Provider
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, THEIRS, cloud_rig, provider_entry
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.nodes import CONTROLLER_PUBLIC
from tests.routing.gateway.rig import until


def tell(site: Site, provider: Provider) -> None:
    """Give a node what the controllers give to one that runs cloud: the provider, its key sealed to this node."""
    file = site.node.config.snapshot_file
    snapshot = from_dict(Snapshot, orjson.loads(file.read_bytes()))
    sealed_to = signing.pairwise_key(site.node.private_key, CONTROLLER_PUBLIC)
    entry = provider_entry(provider.url, key=provider.key, sealed_to=sealed_to)
    write_json(file, {**to_dict(snapshot), "version": f"{snapshot.version}.c", "providers": [to_dict(entry)]})
    site.gateway.table.look()


@asynccontextmanager
async def town(folder: Path, *clouds: str) -> AsyncIterator[tuple[Many, Provider, Site]]:
    """edge -> router -> cloud nodes -> provider."""
    async with Provider(key=PROVIDER_KEY, model=THEIRS) as provider, many(folder) as it:
        it.models = [ModelEntry(name=OURS, created=1, external=External(provider_id="prov_1", model=THEIRS))]
        edge = await it.start("edge", "edge")
        await it.start("router", "router")
        for name in clouds:
            await it.start(name, "cloud")
        await it.settle()
        for name in clouds:
            tell(it.sites[name], provider)
        yield it, provider, edge


async def chat(site: Site, script: Any = "hello", **fields: Any) -> Any:
    return await site.chat(script, model=OURS, **fields)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cloud_model_is_forwarded_to_the_cloud_node_and_metered_at_the_edge(
    tmp_path: Path, stream: bool
) -> None:
    async with town(tmp_path, "cloud") as (it, provider, edge):
        answer = await chat(edge, {"tokens": 4}, stream=stream)
        assert (answer.status_code, provider.wrong) == (200, [])
        assert '"usage"' not in answer.text if stream else answer.json()["usage"]["total_tokens"] == 11
        record = await edge.record()
        assert (record.outcome, record.prompt_tokens, record.completion_tokens) == ("ok", 7, 4)
        assert (record.node_id, record.replica_id) == (it.sites["cloud"].node_id, "")
        assert [name for name, site in it.sites.items() if site.records()] == ["edge"]
        assert not any(name.startswith("x-llmgw") for name in answer.headers)
        await it.idle()


async def test_the_providers_key_is_on_the_cloud_node_alone(tmp_path: Path) -> None:
    async with town(tmp_path, "cloud") as (it, _, edge):
        assert (await chat(edge)).status_code == 200
        for name, site in it.sites.items():
            view = site.gateway.table.view
            assert bool(view.providers) is (name == "cloud")
            files = [path for path in site.node.config.data.rglob("*") if path.is_file()]
            assert not any(PROVIDER_KEY.encode() in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ({"status": 429, "body": '{"error":{"message":"slow down","code":"rate_limited"}}'}, 429, "rate_limited"),
        ({"status": 302, "body": "{}"}, 502, "provider_broken"),
        ({"reset": True}, 502, "provider_broken"),
        ({"status": 401, "body": "{}"}, 502, "provider_refused_key"),
    ],
)
async def test_a_provider_that_fails_is_asked_once_and_said_so_at_the_edge(
    tmp_path: Path, script: dict[str, Any], status: int, code: str
) -> None:
    async with town(tmp_path, "cloud1", "cloud2") as (it, provider, edge):
        answer = await chat(edge, script)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert len(provider.requests) == 1
        record = await edge.record()
        assert (record.outcome, record.status, record.code) == ("failed", status, code)
        await it.idle()


async def test_a_cloud_node_that_cannot_be_reached_is_replaced_by_another(tmp_path: Path) -> None:
    async with town(tmp_path, "cloud1", "cloud2") as (it, provider, edge):
        await it.unreachable(it.sites["cloud1"])
        for _ in range(4):
            assert (await chat(edge)).status_code == 200
        assert len(provider.requests) == 4
        assert {record.node_id for record in edge.records()} == {it.sites["cloud2"].node_id}
        await it.idle()


async def test_an_unreachable_provider_marks_no_node(tmp_path: Path) -> None:
    async with town(tmp_path, "cloud") as (it, provider, edge):
        await provider.stop()
        answer = await chat(edge)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_unreachable")
        router = it.sites["router"].gateway.peers
        assert router.down_for(it.sites["cloud"].node_id) is None


async def test_a_node_that_was_told_of_no_provider_yet_says_so_and_forwards_to_nobody(tmp_path: Path) -> None:
    async with town(tmp_path, "cloud") as (it, provider, edge):
        it.publish()  # without the provider
        cloud = it.sites["cloud"].gateway.table
        await until(lambda: not cloud.view.providers)
        answer = await chat(edge)
        assert (answer.status_code, answer.json()["error"]["code"]) == (508, "already_forwarded")
        assert provider.requests == []
        await it.idle()


async def test_a_provider_that_was_removed_at_this_moment_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the choice of this node and the question."""
    async with cloud_rig(tmp_path) as gw:
        monkeypatch.setattr(gw.gateway.app._parts.cloud, "serves", lambda route: True)
        answer = await gw.chat(model=OURS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "provider_unknown")
        await gw.idle()


async def test_without_any_cloud_node_the_model_is_not_ready_never_unknown(tmp_path: Path) -> None:
    async with town(tmp_path) as (_, _, edge):
        answer = await chat(edge)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "model_not_ready")
        assert "retry-after" in answer.headers


async def test_addresses_of_nodes_stay_inside_when_the_provider_fails(tmp_path: Path) -> None:
    async with town(tmp_path, "cloud") as (it, provider, edge):
        answer = await chat(edge, {"reset": True})
        told = answer.text + json.dumps(
            {name: value for name, value in answer.headers.items() if name != "x-request-id"}
        )
        ports = [str(site.node_port) for site in it.sites.values()] + [str(provider.port)]
        assert not any(port in told for port in ports)
