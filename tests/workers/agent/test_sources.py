"""Weights from other nodes: real gateways give them, one source after the other is asked."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.domain.spans import SEGMENT
from catalog.mirror import fetch as fetching
from catalog.mirror.fetch import Wanted, fetch
from cluster.wire import FetchSource
from llmgw_site.lib.errors import Refused
from tests.routing.gateway.certs import Authority
from tests.routing.gateway.scripted import Peer, serving
from tests.routing.gateway.stored import VERSION
from tests.workers.agent import holders
from tests.workers.agent.holders import Holder, Town
from workers.agent import sources
from workers.agent.sources import FromNodes, recent

NAME = "sub dir/m-Q8_0.gguf"
CONTENT = hashlib.shake_128(b"weights").digest(2 * SEGMENT + 12_345)
FILES = {NAME: CONTENT}
WANTED = Wanted(path=NAME, size=len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(fetching, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(sources, "AGAIN", 0.01)
    monkeypatch.setattr(sources, "TIMEOUT", httpx.Timeout(60.0))


async def bring(
    town: Town, target: Path, given: Sequence[FetchSource], doubted: dict[str, float] | None = None,
    *, wanted: Wanted = WANTED, **words: Any,
) -> str:  # fmt: skip
    """Fetch the file as an agent's thread does. The node that gave something last."""

    def work() -> str:
        with FromNodes(town.calls(), VERSION, given, doubted=doubted) as origin:
            try:
                fetch(wanted, target, origin, reserve=0, **words)
            except Refused as refused:
                if refused.code == "file_wrong":
                    origin.doubt_all()
                raise
            return origin.using

    return await asyncio.to_thread(work)


def sent(*given: Holder) -> int:
    return sum(holder.sent for holder in given)


async def test_a_file_comes_from_a_node_over_several_connections(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        first, second = await town.hold("a", FILES), await town.hold("b", FILES)
        assert await bring(town, tmp_path / "m", [first.source, second.source]) == "node_a"
        assert (tmp_path / "m").read_bytes() == CONTENT
        assert (first.sent, second.sent, len(first.asked)) == (len(CONTENT), 0, 3)


async def test_by_tls_both_sides_are_verified(tmp_path: Path) -> None:
    async with holders.town(tmp_path, "https") as town:
        strange = await town.hold("strange", FILES, authority=Authority("other"))
        good = await town.hold("good", FILES)
        other = FetchSource(node_id="node_strange", address=good.node.address)  # at its address somebody else
        doubted: dict[str, float] = {}
        assert await bring(town, tmp_path / "m", [strange.source, other, good.source], doubted) == "node_good"
        assert (tmp_path / "m").read_bytes() == CONTENT
        assert (strange.sent, good.sent, recent(doubted)) == (0, len(CONTENT), ("node_strange",))


@pytest.mark.parametrize("fault", ["lacks it", "status", "stalls", "gone", "unknown"])
async def test_a_source_that_gives_nothing_is_passed_over(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "stalls":
        monkeypatch.setattr(sources, "TIMEOUT", httpx.Timeout(1.0))
    async with holders.town(tmp_path) as town:
        bad = await town.hold("bad", FILES, version="ver_9999999999" if fault == "lacks it" else VERSION)
        good = await town.hold("good", FILES)
        bad.status, bad.stalls = 503 if fault == "status" else 0, fault == "stalls"
        given = bad.source
        if fault == "gone":
            given = FetchSource(node_id="node_bad", address="http://127.0.0.1:1")
        if fault == "unknown":
            given = FetchSource(node_id="node_nobody", address=bad.node.address)
        doubted: dict[str, float] = {}
        assert await bring(town, tmp_path / "m", [given, good.source], doubted) == "node_good"
        assert (tmp_path / "m").read_bytes() == CONTENT
        assert (sent(bad, good), recent(doubted)) == (len(CONTENT), (given.node_id,))
        assert len(bad.asked) <= 4  # then it is left alone


@pytest.mark.parametrize("begin", [b"HTTP/1.1 206 ", b"HTTP/1.1 503 Later\r\ncontent-length: 9000\r\n\r\n"])
async def test_a_source_whose_head_or_refusal_trickles_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(sources, "HEAD", 1.0)
    ended = []

    async def trickle(peer: Peer) -> None:
        await peer.request()
        await peer.send(begin)
        for _ in range(200):
            await peer.send(b"a")
            await asyncio.sleep(0.05)
        ended.append(peer)

    async with holders.town(tmp_path) as town, serving(trickle) as server:
        bad, good = await town.hold("bad", FILES), await town.hold("good", FILES)
        given = FetchSource(node_id=bad.node.node_id, address=f"http://127.0.0.1:{server.target.port}")
        doubted: dict[str, float] = {}
        brought = await bring(town, tmp_path / "m", [given, good.source], doubted, connections=1)
        assert (brought, recent(doubted), ended) == ("node_good", ("node_bad",), [])


async def test_f13_a_source_that_breaks_off_is_followed_by_another_at_the_same_byte(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        bad, good = await town.hold("bad", FILES), await town.hold("good", FILES)
        bad.cut_after = 3 << 20
        doubted: dict[str, float] = {}
        given = [bad.source, good.source]
        assert await bring(town, tmp_path / "m", given, doubted, connections=1) == "node_good"
        assert (tmp_path / "m").read_bytes() == CONTENT
        assert (bad.sent, sent(bad, good)) == (3 << 20, len(CONTENT))  # not one byte twice
        assert good.asked[0] == f"bytes={3 << 20}-{SEGMENT * 2 - 1}" or good.asked[0].startswith(f"bytes={3 << 20}-")


@pytest.mark.parametrize("lie", ["length", "total", "encoding", "empty"])
async def test_a_source_that_lies_of_a_file_is_passed_over(tmp_path: Path, lie: str) -> None:
    content = CONTENT if lie == "total" else b"{}"  # only a part of a file is told with the length of all
    async with holders.town(tmp_path) as town:
        bad, good = await town.hold("bad", {NAME: content}), await town.hold("good", {NAME: content})
        bad.lie = lie
        doubted: dict[str, float] = {}
        wanted = Wanted(path=NAME, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        given = [bad.source, good.source]
        assert await bring(town, tmp_path / "m", given, doubted, wanted=wanted, connections=2) == "node_good"
        assert (tmp_path / "m").read_bytes() == content
        assert recent(doubted) == ("node_bad",)
        assert len(bad.asked) <= 2  # once by each connection


async def test_where_nobody_gives_it_every_source_is_named(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        bad = await town.hold("bad", FILES, version="ver_9999999999")
        gone = FetchSource(node_id="node_gone", address="http://127.0.0.1:1")
        with pytest.raises(Refused) as refused:
            await bring(town, tmp_path / "m", [bad.source, gone])
        assert refused.value.code == "weights_no_source"
        assert refused.value.retry_after is not None
        assert "node_bad: it answered 404 weights_not_here" in refused.value.message
        assert "node_gone" in refused.value.message
        with pytest.raises(Refused) as refused:
            await bring(town, tmp_path / "m", [])
        assert "no node is named" in refused.value.message


async def test_who_gave_wrong_bytes_is_asked_last_the_next_time(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        bad, good = await town.hold("bad", FILES), await town.hold("good", FILES)
        bad.wrong = True
        doubted: dict[str, float] = {}
        with pytest.raises(Refused) as refused:
            await bring(town, tmp_path / "m", [bad.source, good.source], doubted)
        assert refused.value.code == "file_wrong"
        assert recent(doubted) == ("node_bad",)
        assert await bring(town, tmp_path / "m", [bad.source, good.source], doubted) == "node_good"
        assert (tmp_path / "m").read_bytes() == CONTENT
