"""The endpoints that a node's gateway answers by itself: who may, what they say, what they refuse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from catalog.domain import keys
from cluster.domain.modules import SwitchesFile
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.files import private_folder
from routing.domain.snapshot import AdminEntry, ModelEntry, Placed
from routing.gateway.node_api import MOST, NodeApi
from routing.gateway.peers import Peers
from routing.gateway.strategy import StoredRule
from routing.gateway.table import View
from tests.routing.gateway.fake_cluster import SELF, FakeClock, FakeCluster, map_node, view_of
from tests.routing.gateway.rig import config_for, rig, snapshot

TOKEN = keys.make(keys.TOKEN_PREFIX, entropy=b"a" * 32)
OLD = keys.make(keys.TOKEN_PREFIX, entropy=b"b" * 32)
UNKNOWN = keys.make(keys.TOKEN_PREFIX, entropy=b"c" * 32)
CLIENT = keys.make(keys.KEY_PREFIX, entropy=b"d" * 32)
ENDPOINTS = [
    ("GET", "/api/v1/router/strategy"),
    ("PUT", "/api/v1/router/strategy"),
    ("GET", "/api/v1/cloud/peers"),
    ("GET", "/api/v1/node/modules"),
    ("PUT", "/api/v1/node/modules/router"),
    ("GET", "/api/v1/node/map"),
]


class World:
    """Node endpoints of a router with two peers; `client` is an administrator."""

    def __init__(self, folder: Path) -> None:
        self.config = config_for(folder)
        private_folder(self.config.data)
        self.clock = FakeClock()
        seen = self.clock.at - 10
        a, b = map_node("a", last_seen_at=seen), map_node("b", state="stale", last_seen_at=seen - 90)
        self.cluster = FakeCluster(self.clock, a, b, map_node("me", "router", node_id=SELF, last_seen_at=seen))
        admins = (
            AdminEntry(token_id="t1", sha256=TOKEN.sha256, user="ann"),
            AdminEntry(token_id="t2", sha256=OLD.sha256, user="ann", expires_at=999.0),
        )
        placed = (
            Placed(replica_id="r1", node_id="node_a", state="ready"),
            Placed(replica_id="r2", node_id="node_b", state="starting"),
        )
        self.view = view_of(
            ModelEntry(name="org/m", created=1, placed=placed), ModelEntry(name="n", created=1), admins=admins
        )
        self.peers = Peers(self.config, self.clock, self.cluster, view=lambda: self.view)
        self.rule = StoredRule(self.config.router_file)
        self.api = NodeApi(self.config, self.cluster, self.peers, self.rule, lambda: self.view)
        self.client: httpx.AsyncClient


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    it = World(folder)
    headers = {"authorization": f"Bearer {TOKEN.text}"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(it.api),
        base_url="http://node",
        headers=headers,  # type: ignore[arg-type]
    ) as it.client:
        yield it


def refused(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["code"] == code
    assert {"message", "type", "code", "param"} <= set(error)
    return error


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", "authentication_needed"),
        ("Basic abc", "authentication_needed"),
        ("Bearer", "authentication_needed"),
        (f"Bearer {CLIENT.text}", "admin_token_needed"),
        (f"Bearer {UNKNOWN.text}", "invalid_admin_token"),
        ("Bearer " + "x" * 3000, "invalid_admin_token"),
        (f"Bearer {OLD.text}", "admin_token_expired"),
    ],
)
async def test_every_endpoint_is_for_administrators_only(tmp_path: Path, header: str, code: str) -> None:
    async with world(tmp_path) as it:
        for method, path in ENDPOINTS:
            answer = await it.client.request(
                method, path, headers={"authorization": header}, json={"strategy": "random"}
            )
            assert refused(answer, 401, code)["type"] == "authentication_error"
            assert answer.headers["www-authenticate"].startswith("Bearer")
        assert not it.config.router_file.exists()


async def test_before_the_first_snapshot_nobody_is_known_and_that_is_said(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.view = View()
        answer = await it.client.get("/api/v1/router/strategy")
        refused(answer, 503, "gateway_starting")
        assert answer.headers["retry-after"] == "1"


async def test_only_these_paths_are_served(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        assert all(it.api.serves(path) for _, path in ENDPOINTS)
        assert not any(
            it.api.serves(path) for path in ("/api/v1/nodes", "/api/v1/node", "/api/v1/router", "/api/v1/node/mapping")
        )
        for method, path in ENDPOINTS:
            other = (
                "PUT" if (method, path) in (("GET", "/api/v1/cloud/peers"), ("GET", "/api/v1/node/map")) else "DELETE"
            )
            answer = await it.client.request(other, path)
            refused(answer, 405, "method_not_allowed")
            assert method in answer.headers["allow"]
        assert (await it.client.head("/api/v1/node/map")).status_code == 200


# --- strategy


async def test_the_strategy_is_shown_and_stored(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        shown = (await it.client.get("/api/v1/router/strategy")).json()
        assert (shown["strategy"], shown["affinity"]) == ("load_based", False)
        assert shown["strategies"] == [
            "load_based", "round_robin", "least_connections", "least_latency", "random", "affinity"
        ]  # fmt: skip
        put = await it.client.put("/api/v1/router/strategy", json={"strategy": "round_robin"})
        assert (put.status_code, put.json()["strategy"]) == (200, "round_robin")
        assert (await it.client.get("/api/v1/router/strategy")).json()["strategy"] == "round_robin"
        assert orjson.loads(it.config.router_file.read_bytes()) == {"strategy": "round_robin", "affinity": False}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"strategy":"best"}', 400, "invalid_strategy"),
        (b"{", 400, "invalid_json"),
        (b"", 400, "invalid_json"),
        (b"[" * 5000 + b"]" * 5000, 400, "invalid_json"),
        (b"[]", 400, "not_an_object"),
        (b" " * (MOST + 1), 413, "body_too_large"),
    ],
)
async def test_a_strategy_that_is_none_is_refused(tmp_path: Path, body: bytes, status: int, code: str) -> None:
    async with world(tmp_path) as it:
        refused(await it.client.put("/api/v1/router/strategy", content=body), status, code)
        assert not it.config.router_file.exists()


async def test_a_strategy_that_cannot_be_stored_is_500_persist_failed(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.config.router_file.mkdir()  # also root cannot rename a file over a folder
        refused(await it.client.put("/api/v1/router/strategy", json={"strategy": "random"}), 500, "persist_failed")
        assert (await it.client.get("/api/v1/router/strategy")).json()["strategy"] == "load_based"


# --- peers and map


async def test_peers_of_all_models_or_of_one(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.peers.enter("node_a", "org/m")
        rows = (await it.client.get("/api/v1/cloud/peers")).json()
        assert [
            (row["model"], row["node"], row["serving_state"], row["down_for_s"], row["in_flight"]) for row in rows
        ] == [
            ("org/m", "a", "ready", None, 1),
            ("org/m", "b", "starting", None, 0),
        ]
        assert (await it.client.get("/api/v1/cloud/peers", params={"model": "n"})).json() == []
        assert len((await it.client.get("/api/v1/cloud/peers", params={"model": "org/m"})).json()) == 2
        refused(await it.client.get("/api/v1/cloud/peers", params={"model": "absent"}), 404, "model_not_found")


async def test_the_map_tells_ages_and_nothing_secret(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.clock.at += 5
        it.peers.heard("node_b", None)
        it.clock.at += 2
        shown = (await it.client.get("/api/v1/node/map")).json()
        nodes = {node["name"]: node for node in shown["nodes"]}
        assert {name: (node["state"], node["last_seen_age_s"]) for name, node in nodes.items()} == {
            "a": ("online", 17.0),
            "b": ("stale", 2.0),  # it answered us
            "me": ("online", 0.0),
        }
        assert nodes["a"]["modules"] == [{"name": "inference", "state": "running", "code": "", "message": ""}]
        assert (shown["version"], shown["age_s"]) == ("v1", 7.0)
        it.cluster.map = None
        assert (await it.client.get("/api/v1/node/map")).json()["nodes"] == []


# --- modules


async def test_modules_are_shown_and_switched(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        shown = (await it.client.get("/api/v1/node/modules")).json()
        assert (shown["managed"], shown["roles"]) == (False, ["router"])
        assert [(item["name"], item["state"]) for item in shown["modules"]] == [("router", "running")]
        put = await it.client.put("/api/v1/node/modules/router", json={"state": "stopped"})
        assert (put.status_code, put.json()) == (200, {"name": "router", "state": "running", "wanted": "stopped"})
        put = await it.client.put("/api/v1/node/modules/cloud", json={"state": "running"})
        assert put.json() == {"name": "cloud", "state": "stopped", "wanted": "running"}
        stored = from_dict(SwitchesFile, orjson.loads(it.config.switches_file.read_bytes()))
        assert stored.modules == {"router": False, "cloud": True}


async def test_modules_of_a_node_that_the_setup_names_are_not_switched_here(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.cluster.manage()
        answer = await it.client.put("/api/v1/node/modules/router", json={"state": "stopped"})
        refused(answer, 409, "managed_by_cluster_setup")
        assert not it.config.switches_file.exists()
        assert (await it.client.get("/api/v1/node/modules")).json()["managed"] is True


@pytest.mark.parametrize(
    ("name", "body", "status", "code"),
    [
        ("oven", {"state": "running"}, 404, "not_found"),
        ("router/x", {"state": "running"}, 404, "not_found"),
        ("router", {"state": "unavailable"}, 400, "invalid_value"),
        ("router", {"state": True}, 400, "invalid_value"),
        ("router", {"state": ["running"]}, 400, "invalid_value"),
        ("router", [], 400, "invalid_value"),
    ],
)
async def test_a_switch_that_is_none_is_refused(tmp_path: Path, name: str, body: Any, status: int, code: str) -> None:
    async with world(tmp_path) as it:
        refused(await it.client.put(f"/api/v1/node/modules/{name}", json=body), status, code)
        assert not it.config.switches_file.exists()


async def test_a_switch_that_cannot_be_stored_is_persist_failed(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        it.config.switches_file.parent.write_bytes(b"a file where the folder should be")
        refused(await it.client.put("/api/v1/node/modules/router", json={"state": "stopped"}), 500, "persist_failed")


async def test_a_defect_is_500_and_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(tmp_path) as it:
        monkeypatch.setattr(it.peers, "shown", lambda model: 1 / 0)
        error = refused(await it.client.get("/api/v1/cloud/peers"), 500, "internal_error")
        assert "division" not in str(error)


async def test_they_are_reached_through_the_client_listener_and_kept_across_a_restart(tmp_path: Path) -> None:
    admins = (AdminEntry(token_id="t", sha256=TOKEN.sha256, user="ann"),)
    headers = {"authorization": f"Bearer {TOKEN.text}"}

    def prepare(config: Config) -> None:
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(admins=admins))))

    async with rig(tmp_path, prepare=prepare) as gw:
        assert (await gw.client.get("/api/v1/node/map", headers=headers)).json()["nodes"] == []
        put = await gw.client.put("/api/v1/router/strategy", headers=headers, json={"strategy": "least_latency"})
        assert put.status_code == 200
        refused(await gw.client.get("/api/v1/router/strategy"), 401, "admin_token_needed")
    async with rig(tmp_path, prepare=prepare) as gw:
        shown = await gw.client.get("/api/v1/router/strategy", headers=headers)
        assert shown.json()["strategy"] == "least_latency"
