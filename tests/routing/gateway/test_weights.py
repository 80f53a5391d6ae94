"""Weights from node to node: who may ask, which bytes come, and what they cost. Real gateways over real sockets."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from cluster.domain.modules import MapNode
from llmgw_site.lib.units import MIB
from routing.gateway import sendfile
from tests.routing.gateway.certs import Authority
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import KEY
from tests.routing.gateway.scripted import until
from tests.routing.gateway.stored import VERSION, put, put_hollow

CONTENT = {"sub/m-Q8_0.gguf": os.urandom(3_000_001), "a b.json": b"{}", "empty.txt": b""}
BIG = CONTENT["sub/m-Q8_0.gguf"]


@asynccontextmanager
async def pair(folder: Path, **settings: Any) -> AsyncIterator[tuple[Many, Site, Site]]:
    """A node that holds a version, and one that asks it."""
    async with many(folder) as town:
        holder = await town.start("holder", "data", **settings)
        asker = await town.start("asker", "inference")
        put(holder.node.config.store, CONTENT)
        await town.settle()
        yield town, holder, asker


class Client:
    """Calls of one site to another's node listener, signed."""

    def __init__(self, http: httpx.AsyncClient, asker: Site, holder: Site) -> None:
        self.http, self._asker, self._holder = http, asker, holder

    @property
    def node(self) -> MapNode:
        return self._asker.gateway.members.nodes[self._holder.node_id]

    def request(self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> httpx.Request:
        path = f"/node/weights/{path}"
        request = self.http.build_request(method, self._holder.node.address + path, headers=headers)
        raw = request.url.raw_path.decode()
        signed = self._asker.gateway.members.sign(self.node, method=method, path=raw, body=b"")
        request.headers.update([(name.decode(), value.decode()) for name, value in signed])
        return request

    async def ask(self, path: str, **words: Any) -> httpx.Response:
        return await self.http.send(self.request(path, **words))

    async def part(self, value: str, path: str = f"{VERSION}/sub/m-Q8_0.gguf") -> httpx.Response:
        return await self.ask(path, headers={"range": value})


@asynccontextmanager
async def client(asker: Site, holder: Site, **settings: Any) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(timeout=30, trust_env=False, **settings) as http:
        yield Client(http, asker, holder)


async def test_a_file_is_given_whole_and_in_parts(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker), client(asker, holder) as node:
        whole = await node.ask(f"{VERSION}/sub/m-Q8_0.gguf")
        assert (whole.status_code, whole.content == BIG) == (200, True)
        assert whole.headers["etag"] == f'"{hashlib.sha256(BIG).hexdigest()}"'
        assert whole.headers["accept-ranges"] == "bytes"
        for value, start, end in (
            ("bytes=0-0", 0, 1),
            ("bytes=1000-2500000", 1000, 2_500_001),
            ("bytes=3000000-", 3_000_000, 3_000_001),
            ("bytes=-7", 2_999_994, 3_000_001),
            ("bytes=0-", 0, 3_000_001),
        ):
            part = await node.part(value)
            assert (part.status_code, part.content == BIG[start:end]) == (206, True)
            assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{len(BIG)}"
        out = await node.part("bytes=3000001-")
        assert (out.status_code, out.headers["content-range"], out.content) == (416, f"bytes */{len(BIG)}", b"")
        stale = {"range": "bytes=0-9", "if-range": '"other"'}
        assert (await node.ask(f"{VERSION}/sub/m-Q8_0.gguf", headers=stale)).status_code == 200
        assert (await node.ask(f"{VERSION}/a%20b.json")).content == b"{}"
        empty = await node.ask(f"{VERSION}/empty.txt")
        assert (empty.status_code, empty.content) == (200, b"")
        head = await node.ask(f"{VERSION}/sub/m-Q8_0.gguf", method="HEAD")
        assert (head.status_code, head.headers["content-length"], head.content) == (200, str(len(BIG)), b"")
        put_it = await node.ask(f"{VERSION}/a%20b.json", method="PUT")
        assert (put_it.status_code, put_it.json()["error"]["code"]) == (400, "method_not_allowed")
        again = await node.ask(f"{VERSION}/a%20b.json")  # the connection is as good as before
        assert again.status_code == 200


async def test_only_nodes_are_given_weights(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker), client(asker, holder) as node:
        url = f"{holder.node.address}/node/weights/{VERSION}/a%20b.json"
        for headers in ({}, {"authorization": f"Bearer {KEY.text}"}):
            answer = await node.http.get(url, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "node_signature_required")
        request = node.request(f"{VERSION}/a%20b.json")
        other = httpx.Request("GET", f"{holder.node.address}/node/weights/{VERSION}/empty.txt", headers=request.headers)
        answer = await node.http.send(other)  # signed for another file
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "bad_signature")
        assert (await node.http.send(request)).status_code == 200
        assert (await node.http.send(request)).json()["error"]["code"] == "call_repeated"
        client_side = await holder.client.get(f"/node/weights/{VERSION}/a%20b.json")
        assert client_side.status_code == 404


NOWHERE = [
    "ver_0000000002/m.gguf",
    f"{VERSION}/nothing.gguf",
    f"{VERSION}/../manifest.json",
    f"{VERSION}/%2e%2e/manifest.json",
    f"{VERSION}/sub/%2E%2E/%2E%2E/manifest.json",
    f"{VERSION}/%2Fetc%2Fpasswd",
    f"{VERSION}//etc/passwd",
    f"{VERSION}/",
    VERSION,
    "",
    f"%2e%2e/weights/{VERSION}/a%20b.json",
    f"{VERSION}/a%20b.json%00",
    f"{VERSION}/sub",
    f"{VERSION}/%ff",
]


async def test_no_path_leads_anywhere_else(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker):
        node = asker.gateway.members.nodes[holder.node_id]
        for path in NOWHERE:
            reader, writer = await asyncio.open_connection("127.0.0.1", holder.node_port)
            raw = f"/node/weights/{path}"
            signed = asker.gateway.members.sign(node, method="GET", path=raw, body=b"")
            lines = b"".join(b"%b: %b\r\n" % item for item in signed)
            writer.write(b"GET %b HTTP/1.1\r\nhost: n\r\nconnection: close\r\n%b\r\n" % (raw.encode(), lines))
            answer = await reader.read()
            assert b" 404 " in answer.partition(b"\r\n")[0], path
            assert b"weights_not_here" in answer
            writer.close()


async def test_a_link_leads_nowhere_and_a_damaged_file_is_not_given(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker), client(asker, holder) as node:
        files = holder.node.config.store / VERSION / "files"
        (files / "a b.json").unlink()
        (files / "a b.json").symlink_to("/etc/passwd")
        assert (await node.ask(f"{VERSION}/a%20b.json")).json()["error"]["code"] == "weights_not_here"
        with (files / "sub/m-Q8_0.gguf").open("r+b") as file:
            file.truncate(5)
        answer = await node.ask(f"{VERSION}/sub/m-Q8_0.gguf")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "weights_not_here")


async def test_what_is_not_whole_is_given_to_nobody(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker), client(asker, holder) as node:
        put(holder.node.config.store, CONTENT, version="ver_0000000009", whole=False)
        assert (await node.ask("ver_0000000009/a%20b.json")).status_code == 404


async def test_by_tls_the_bytes_are_the_same(tmp_path: Path) -> None:
    authority = Authority()
    async with many(tmp_path) as town:
        town.scheme = "https"
        holder = await town.start("holder", "data")
        asker = await town.start("asker", "inference")
        for site in (holder, asker):
            authority.give(site.node.config.tls_folder, site.node_id)
        put(holder.node.config.store, CONTENT)
        await town.settle()
        context = asker.gateway.members.certificates.client
        context.check_hostname = False
        async with client(asker, holder, verify=context) as node:
            assert (await node.ask(f"{VERSION}/sub/m-Q8_0.gguf")).content == BIG
            assert (await node.part("bytes=5-2000005")).content == BIG[5:2_000_006]
            assert (await node.ask(f"{VERSION}/empty.txt")).content == b""


def resident() -> int:
    """Bytes of this process in memory that are its own."""
    parts = Path("/proc/self/statm").read_text().split()
    return (int(parts[1]) - int(parts[2])) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_readers_that_stand_still_cost_no_memory_and_no_thread(tmp_path: Path, scheme: str) -> None:
    authority = Authority()
    async with many(tmp_path) as town, AsyncExitStack() as stack:
        town.scheme = scheme
        holder = await town.start("holder", "data")
        asker = await town.start("asker", "inference")
        for site in (holder, asker):
            authority.give(site.node.config.tls_folder, site.node_id)
        put_hollow(holder.node.config.store, 512 * MIB)
        await town.settle()
        context = asker.gateway.members.certificates.client
        context.check_hostname = False
        node = await stack.enter_async_context(client(asker, holder, verify=context))
        before = resident()
        answers = [await node.http.send(node.request(f"{VERSION}/m.gguf"), stream=True) for _ in range(12)]
        await asyncio.sleep(1.0)
        assert resident() - before < 40 * MIB  # some MiB for each connection's buffers, of 6 GiB
        put(holder.node.config.store, CONTENT, version="ver_0000000003")
        assert (await node.ask("ver_0000000003/sub/m-Q8_0.gguf")).content == BIG  # and others are answered
        for answer in answers:
            await answer.aclose()
        await until(lambda: not _open_files(holder.node.config.store))


def _open_files(folder: Path) -> list[str]:
    """Files below `folder` that this process has open."""
    found = []
    for item in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(item.readlink()))
        except OSError:
            continue
    return [name for name in found if name.startswith(str(folder))]


async def test_a_reader_that_takes_nothing_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sendfile, "LOOK", 0.1)
    async with pair(tmp_path, write_timeout=0.5) as (_, holder, asker), client(asker, holder) as node:
        put_hollow(holder.node.config.store, 512 * MIB)
        answer = await node.http.send(node.request(f"{VERSION}/m.gguf"), stream=True)
        await until(lambda: not _open_files(holder.node.config.store))
        with pytest.raises(httpx.HTTPError):
            async for _ in answer.aiter_raw():
                pass


async def test_a_file_that_shrinks_under_way_cuts_the_answer(tmp_path: Path) -> None:
    async with pair(tmp_path) as (_, holder, asker), client(asker, holder) as node:
        put_hollow(holder.node.config.store, 512 * MIB)
        answer = await node.http.send(node.request(f"{VERSION}/m.gguf"), stream=True)
        os.truncate(holder.node.config.store / VERSION / "files" / "m.gguf", 0)
        with pytest.raises(httpx.HTTPError):
            async for _ in answer.aiter_raw():
                pass
        await until(lambda: not _open_files(holder.node.config.store))


@pytest.mark.parametrize(("clients", "status"), [("asker", 200), ("node_asker", 200), ("third, other", 403)])
async def test_weights_are_given_to_named_nodes_only_where_some_are_named(
    tmp_path: Path, clients: str, status: int
) -> None:
    names = tuple(name.strip() for name in clients.split(","))
    async with pair(tmp_path, weights_clients=names) as (_, holder, asker), client(asker, holder) as node:
        answer = await node.ask(f"{VERSION}/a%20b.json")
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["error"]["code"] == "weights_not_for_node"
