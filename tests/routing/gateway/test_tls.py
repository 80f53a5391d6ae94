"""TLS between nodes: both sides verified by the cluster's CA, by who they are and not by where they listen."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from cluster.domain.joining import tls_name
from cluster.domain.signing import HEADERS
from routing.gateway.certificates import Certificates, peer_certificate
from tests.routing.gateway.certs import Authority
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import TINY, ask, until
from tests.routing.gateway.test_hops import _passed_on
from tests.routing.gateway.test_web_proxy import Echo, web

SIGNED = dict.fromkeys(HEADERS, "1")


@asynccontextmanager
async def pair(folder: Path, authority: Authority) -> AsyncIterator[tuple[Many, Site, Site]]:
    """An edge that routes, and an inference node, over TLS."""
    async with many(folder) as town:
        town.scheme = "https"
        edge = await town.start("edge", "edge", "router")
        worker = await town.start("worker", "inference", serves=(TINY,))
        for site in (edge, worker):
            authority.give(site.node.config.tls_folder, site.node_id)
            site.gateway.members.certificates.look()
        await town.settle()
        yield town, edge, worker


def context(folder: Path, *, own: bool = True) -> ssl.SSLContext:
    """A client's, that checks nothing itself."""
    made = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    made.check_hostname = False
    if own:
        made.load_cert_chain(folder / "node.pem", folder / "node.key")
    return made


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def test_a_chat_and_a_stream_over_tls(tmp_path: Path) -> None:
    async with pair(tmp_path, Authority()) as (town, edge, worker):
        assert (await edge.chat()).status_code == 200
        answer = await edge.chat({"tokens": 3, "gap": 0.02}, stream=True)
        assert answer.text.endswith("data: [DONE]\n\n")
        assert worker.asked == 2
        assert worker.gateway.node_tls is worker.gateway.members.certificates.server
        await town.idle()


async def test_a_node_of_another_cluster_and_one_with_another_nodes_certificate_are_not_reached(tmp_path: Path) -> None:
    authority = Authority()
    async with pair(tmp_path, authority) as (_, edge, worker):
        folder = worker.node.config.tls_folder
        for other, node_id in ((Authority("other"), worker.node_id), (authority, "node_somebody")):
            other.give(folder, node_id)
            (folder / "ca.pem").write_bytes((edge.node.config.tls_folder / "ca.pem").read_bytes())
            worker.gateway.members.certificates.look()
            await edge.gateway.upstream.close()
            edge.gateway.upstream._closed = False
            assert code(await edge.chat()) == (502, "upstream_unreachable")
        assert worker.asked == 0


async def test_a_caller_must_show_the_certificate_of_the_node_that_signs(tmp_path: Path) -> None:
    authority = Authority()
    async with pair(tmp_path, authority) as (_, edge, worker):
        authority.give(edge.node.config.tls_folder, "node_somebody")
        edge.gateway.members.certificates.look()
        answer = await edge.chat()
        assert code(answer) == (502, "node_refused")
        assert "node_certificate_wrong" in answer.json()["error"]["message"]
        assert worker.asked == 0


async def test_without_a_certificate_only_joining_and_health_are_open(tmp_path: Path) -> None:
    async with pair(tmp_path, Authority()) as (_, edge, worker), web(worker.node.config, Echo()):
        bare = context(edge.node.config.tls_folder, own=False)
        async with httpx.AsyncClient(base_url=worker.node.address, verify=bare) as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.post("/api/v1/agent/join", content=b"hi")).status_code == 201
            required = (401, "node_certificate_required")
            assert code(await client.post("/api/v1/agent/heartbeat", headers=SIGNED)) == required
            headers = edge.gateway.members.sign(
                edge.gateway.members.nodes[worker.node_id], method="GET", path="/api/v1/node/models", body=b""
            )
            names = {name.decode(): value.decode() for name, value in headers}
            assert code(await client.get("/api/v1/node/models", headers=names)) == required
            assert code(await client.post("/v1/chat/completions", json=ask())) == (401, "node_signature_required")
        own = context(edge.node.config.tls_folder)
        async with httpx.AsyncClient(base_url=worker.node.address, verify=own) as client:
            claimed = {**SIGNED, "x-llmgw-node": worker.node_id}
            assert code(await client.post("/api/v1/agent/heartbeat", headers=claimed))[1] == "node_certificate_wrong"
            claimed["x-llmgw-node"] = edge.node_id
            assert (await client.post("/api/v1/agent/heartbeat", headers=claimed)).status_code == 201


async def test_the_agents_websocket_needs_the_certificate_too(tmp_path: Path) -> None:
    app = Echo()
    async with pair(tmp_path, Authority()) as (_, edge, worker), web(worker.node.config, app):
        url = worker.node.address.replace("https://", "wss://") + "/ws/agent"
        claimed = {**SIGNED, "x-llmgw-node": edge.node_id}
        folder = edge.node.config.tls_folder
        for verify, headers in ((context(folder, own=False), claimed), (context(folder), SIGNED)):
            with pytest.raises(InvalidStatus):
                await connect(url, ssl=verify, additional_headers=headers, proxy=None)
        assert not app.scopes
        async with connect(url, ssl=context(folder), additional_headers=claimed, proxy=None):
            assert [scope["path"] for scope in app.scopes] == ["/ws/agent"]


async def test_a_certificate_of_another_ca_gets_no_connection(tmp_path: Path) -> None:
    async with pair(tmp_path, Authority()) as (_, edge, worker):
        Authority("other").give(tmp_path, edge.node_id)
        stranger = context(tmp_path)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
        async with httpx.AsyncClient(base_url=worker.node.address, verify=stranger) as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/healthz")


async def test_a_certificate_that_has_run_out_is_refused_on_both_sides(tmp_path: Path) -> None:
    authority = Authority()
    async with pair(tmp_path, authority) as (_, edge, worker):
        authority.give(tmp_path, edge.node_id, days_left=-0.1)
        async with httpx.AsyncClient(base_url=worker.node.address, verify=context(tmp_path)) as client:
            with pytest.raises(httpx.TransportError):
                await client.get("/healthz")
        authority.give(worker.node.config.tls_folder, worker.node_id, days_left=-0.1)
        worker.gateway.members.certificates.look()
        assert code(await edge.chat()) == (502, "upstream_unreachable")
        assert worker.asked == 0


async def test_a_revoked_certificate_is_refused_on_both_sides(tmp_path: Path) -> None:
    authority = Authority()
    async with pair(tmp_path, authority) as (town, edge, worker):
        serial = authority.give(edge.node.config.tls_folder, edge.node_id)
        edge.gateway.members.certificates.look()
        assert (await edge.chat()).status_code == 200
        town.cluster.revoked = (serial,)
        await town.settle()
        answer = await edge.chat()
        assert code(answer) == (502, "node_refused")
        assert "node_certificate_wrong" in answer.json()["error"]["message"]
        authority.give(edge.node.config.tls_folder, edge.node_id)
        town.cluster.revoked = (authority.give(worker.node.config.tls_folder, worker.node_id).upper(),)
        for site in (edge, worker):
            site.gateway.members.certificates.look()
        await town.settle()
        await edge.gateway.upstream.close()
        edge.gateway.upstream._closed = False
        assert code(await edge.chat()) == (502, "upstream_unreachable")


async def test_a_renewed_certificate_counts_without_a_restart(tmp_path: Path) -> None:
    authority = Authority()
    async with pair(tmp_path, authority) as (town, edge, worker):
        assert (await edge.chat()).status_code == 200
        old = authority.give(worker.node.config.tls_folder, worker.node_id)
        await until(lambda: worker.gateway.members.certificates._marks[1] is not None)
        new = authority.give(worker.node.config.tls_folder, worker.node_id)
        worker.gateway.members.certificates.look()
        town.cluster.revoked = (old,)
        await town.settle()
        await edge.gateway.upstream.close()
        edge.gateway.upstream._closed = False
        assert (await edge.chat()).status_code == 200
        shown = [
            connection.certificate
            for pool in edge.gateway.upstream._pools.values()
            for connection in pool.open
            if connection.certificate is not None
        ]
        assert [(item.node_id, item.serial) for item in shown] == [(worker.node_id, new)]
        assert _passed_on(worker) == {("forwarded", "200"): 2.0}


def test_damaged_files_leave_what_counts(tmp_path: Path) -> None:
    Authority().give(tmp_path, "node_1")
    certificates = Certificates(tmp_path)
    certificates.look()
    before = certificates.server.get_ca_certs()
    (tmp_path / "ca.pem").write_text("nonsense")
    (tmp_path / "node.pem").write_text("nonsense")
    certificates.look()
    assert certificates.server.get_ca_certs() == before
    assert len(before) == 1


def test_a_node_id_as_a_dns_name_and_a_certificate_that_was_not_shown() -> None:
    assert tls_name("node_01ABC") == "node-01abc.node.llmgw"
    assert peer_certificate(None) is None
    assert peer_certificate({}) is None
