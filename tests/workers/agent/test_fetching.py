"""Orders to fetch are carried out: from a hub and from other nodes over real HTTP, whatever breaks in between."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.domain.spans import SEGMENT
from catalog.mirror import fetch as bringing
from catalog.mirror.store import Store
from catalog.registry import answers, client
from cluster.wire import REGISTRY, FetchOrder, FetchReport, Wanted
from llmgw_site.lib.config import Config, load
from llmgw_site.lib.units import MIB
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.routing.gateway.stored import VERSION, manifest_of
from tests.workers.agent import holders
from workers.agent import fetch_plan, fetching, sources
from workers.agent.fetching import Fetching
from workers.agent.link import LinkError
from workers.agent.sources import NodeCalls

NAME = "m-Q8_0.gguf"
CONTENT = hashlib.shake_128(b"node weights").digest(2 * SEGMENT + 12_345)
FILES = {NAME: CONTENT, "config.json": b"{}"}
OTHERS = {NAME: CONTENT[::-1], "config.json": b"[]"}
BARE = Manifest(id=VERSION, format=Format.GGUF, first=NAME, files=manifest_of(FILES).files)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bringing, fetch_plan):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.02)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(bringing, "RETRIES", 2)
    monkeypatch.setattr(fetch_plan, "LATER", 0.3)
    for hub_s in (answers, client):
        monkeypatch.setattr(hub_s, "PAUSE", 0.05)
    monkeypatch.setattr(sources, "AGAIN", 0.01)
    monkeypatch.setattr(sources, "TIMEOUT", httpx.Timeout(60.0))
    monkeypatch.setattr(fetching, "TICK", 0.02)
    monkeypatch.setattr(fetching, "TOLD_EVERY", 0.05)
    monkeypatch.setattr(fetching, "TIDY_EVERY", 0.05)
    monkeypatch.setattr(fetch_plan, "REMOVE_AFTER", 0.2)


@pytest.fixture(scope="module")
def serving() -> Iterator[Hub]:
    with running() as hub:
        hub.add(Repo("org/m")).commit(dict(FILES))
        hub.add(Repo("org/gated", gated="auto", granted=frozenset({"hf_reader"}))).commit(dict(FILES))
        yield hub


@pytest.fixture
def hub(serving: Hub) -> Hub:
    serving.faults.reset()
    serving.seen.clear()
    return serving


def of_hub(hub: Hub, repository: str = "org/m") -> Manifest:
    return replace(BARE, registry=hub.base, repository=repository, commit=hub.repos[repository].head)


class Node:
    """The fetching of a node whose controllers are these lines. `manifests`: what they say of versions."""

    def __init__(self, config: Config, calls: NodeCalls, *manifests: Manifest) -> None:
        self.config = config
        self.manifests = {item.id: item for item in manifests}
        self.store = Store(config.store, limit=config.store_limit, reserve=0)
        self.used: set[str] = set()
        self.data = False
        self.told = self.changes = 0
        self.work = Fetching(
            config, self.store, self, calls, used=lambda: self.used, data=lambda: self.data, news=self._news,
            changed=self._changed,
        )  # fmt: skip

    def _news(self) -> None:
        self.told += 1

    def _changed(self) -> None:
        self.changes += 1

    async def manifest(self, version: str) -> Any:
        if version not in self.manifests:
            raise LinkError("http://c: answered 404 version_unknown")
        return self.manifests[version].as_dict()

    def want(self, *orders: FetchOrder, kept: tuple[str, ...] | None = None, removed: tuple[str, ...] = ()) -> None:
        self.work.take(Wanted(server_time=0.0, fetches=orders, kept=kept, removed=removed))

    @property
    def report(self) -> FetchReport:
        return self.work.reports()[0]

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.01)

    async def whole(self, version: str = VERSION) -> None:
        await self.until(lambda: (found := self.store.status(version)) and found.whole)
        await self.until(lambda: version not in {item.version for item in self.work.reports()})
        path = self.store.path(version)
        assert path is not None
        assert path.read_bytes() == CONTENT


@asynccontextmanager
async def at_work(node: Node) -> AsyncIterator[Node]:
    task = asyncio.ensure_future(node.work.run())
    try:
        yield node
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def alone(folder: Path, *manifests: Manifest, **variables: str) -> AsyncIterator[Node]:
    """A node that knows no other."""
    async with holders.town(folder) as town:
        town.publish()
        settings = {"LLMGW_DATA": str(town.asker.config.data), "LLMGW_PRIVATE_ADDRESSES": "1", **variables}
        async with at_work(Node(load(settings), town.calls(), *manifests)) as node:
            yield node


FROM_REGISTRY = FetchOrder(version=VERSION, registry=True)


async def test_a_version_is_fetched_from_the_registry_with_the_nodes_own_settings(tmp_path: Path, hub: Hub) -> None:
    wanted = of_hub(hub, "org/gated")
    async with alone(tmp_path, wanted, HF_ENDPOINT=hub.base, HF_TOKEN="hf_reader") as node:
        node.want(FROM_REGISTRY)
        await node.whole()
        assert node.store.manifest(VERSION) == wanted
        assert (node.work.reports(), node.changes) == ((), 1)
        assert node.told >= 1
        assert hub.sent() == sum(map(len, FILES.values()))


async def test_of_a_newer_version_only_what_is_new_is_fetched_and_the_rest_is_told_apart(
    tmp_path: Path, hub: Hub
) -> None:
    newer = hashlib.shake_128(b"newer").digest(len(CONTENT))
    if "org/newer" not in hub.repos:
        hub.add(Repo("org/newer")).commit({NAME: CONTENT, "other.gguf": newer})
    both = manifest_of({NAME: CONTENT, "other.gguf": newer}, version="ver_newer00000")
    wanted = replace(both, registry=hub.base, repository="org/newer", commit=hub.repos["org/newer"].head)
    async with alone(tmp_path, of_hub(hub), wanted, HF_ENDPOINT=hub.base) as node:
        node.want(FROM_REGISTRY)
        await node.whole()
        before = hub.sent()
        hub.faults.hold_from = SEGMENT // 2
        node.want(FROM_REGISTRY, FetchOrder(version=wanted.id, registry=True), kept=(VERSION,))
        await node.until(lambda: any(item.there > len(CONTENT) for item in node.work.reports()))
        (report,) = node.work.reports()
        assert (report.shared, report.size) == (len(CONTENT), wanted.size)
        hub.faults.reset()
        await node.whole(wanted.id)
        assert hub.sent() - before == len(newer)


async def test_files_at_plain_addresses_are_fetched_from_there(tmp_path: Path, hub: Hub) -> None:
    commit = hub.repos["org/m"].head
    files = tuple(
        ManifestFile(
            path=item.path, size=item.size, sha256=item.sha256, url=f"{hub.base}/org/m/resolve/{commit}/{item.path}"
        )
        for item in BARE.files
    )
    async with alone(tmp_path, replace(BARE, files=files), HF_TOKEN="hf_reader") as node:
        node.want(FROM_REGISTRY)
        await node.whole()
        assert {item["token"] for item in hub.seen} == {""}


async def test_a_refusal_is_told_with_its_code_and_tried_again(tmp_path: Path, hub: Hub) -> None:
    async with alone(tmp_path, of_hub(hub, "org/gated"), HF_ENDPOINT=hub.base) as node:
        node.want(FROM_REGISTRY)
        await node.until(lambda: node.report.code == "repository_gated")
        assert "access" in node.report.message
        assert node.report.size == BARE.size
        asked = len(hub.seen)
        await node.until(lambda: len(hub.seen) > asked)
        hub.repos["org/gated"].gated = ""
        try:
            await node.whole()
        finally:
            hub.repos["org/gated"].gated = "auto"


async def test_why_it_does_not_get_on_is_told_until_it_does(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A try that begins is no progress, however much those before it had brought."""
    hub.faults.hold_from = SEGMENT // 2 + MIB
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base) as node:
        answer = node.manifest
        codes: set[str] = set()

        async def slowly(version: str) -> Any:
            await asyncio.sleep(0.2)
            return await answer(version)

        def often() -> bool:
            codes.add(node.report.code)
            return node.work._fetches[VERSION].failures >= 2

        monkeypatch.setattr(node, "manifest", slowly)
        node.want(FROM_REGISTRY)
        await node.until(lambda: node.report.there > SEGMENT // 2)
        hub.faults.cut_after, hub.faults.server_errors = 1, 1_000_000
        hub.faults.hold_from = None
        await node.until(lambda: node.report.code)
        await node.until(often)
        assert "" not in codes
        hub.faults.reset()
        await node.whole()


async def test_progress_and_rate_are_told_while_it_goes_on(tmp_path: Path, hub: Hub) -> None:
    hub.faults.hold_from = SEGMENT // 2
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base) as node:
        node.want(FROM_REGISTRY)
        await node.until(lambda: 0 < node.report.there < BARE.size and node.report.rate)
        assert (node.report.size, node.report.code, node.report.source) == (BARE.size, "", REGISTRY)
        told = node.told
        await node.until(lambda: node.told > told + 2)
        hub.faults.reset()
        await node.whole()


async def test_an_order_that_vanishes_stops_its_fetch_and_comes_back_to_what_is_there(tmp_path: Path, hub: Hub) -> None:
    hub.faults.hold_from = SEGMENT + MIB
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base) as node:
        node.want(FROM_REGISTRY)
        await node.until(lambda: (found := node.store.status(VERSION)) and found.there >= SEGMENT)
        node.want()
        assert node.work.reports() == ()
        await node.until(node.work._fetches[VERSION].stop.is_set)
        hub.faults.hold_from = None
        await node.until(lambda: not node.work._fetches)
        found = node.store.status(VERSION)
        await asyncio.sleep(0.2)
        assert node.store.status(VERSION) == found
        assert found is not None
        assert not found.whole
        hub.faults.reset()
        hub.seen.clear()
        node.want(FROM_REGISTRY)
        await node.whole()
        assert hub.sent() <= BARE.size - found.there


async def test_a_version_comes_from_nodes_and_sources_change_under_way(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        first, second = await town.hold("a", FILES), await town.hold("b", FILES)
        first.pause = 60.0
        async with at_work(Node(town.asker.config, town.calls(), BARE)) as node:
            node.want(FetchOrder(version=VERSION, sources=(first.source,)))
            await node.until(lambda: first.sent and node.report.source == "node_a")
            first.cut_after, first.pause = 0, 0.0  # it goes
            node.want(FetchOrder(version=VERSION, sources=(first.source, second.source)))
            await node.whole()
            assert second.sent > 0


async def test_a_registry_fetch_that_nodes_take_over_keeps_what_is_there(tmp_path: Path, hub: Hub) -> None:
    hub.faults.hold_from = SEGMENT + MIB
    async with holders.town(tmp_path) as town:
        holder = await town.hold("a", FILES)
        config = replace(town.asker.config, registry=hub.base, private_addresses=True)
        async with at_work(Node(config, town.calls(), of_hub(hub))) as node:
            node.want(FROM_REGISTRY)
            await node.until(lambda: (found := node.store.status(VERSION)) and found.there >= SEGMENT)
            node.want(FetchOrder(version=VERSION, sources=(holder.source,)))
            await node.until(node.work._fetches[VERSION].stop.is_set)
            hub.faults.hold_from = None
            await node.whole()
            assert 0 < holder.sent < len(CONTENT)


async def test_what_waits_says_what_for(tmp_path: Path) -> None:
    async with alone(tmp_path, BARE) as node:
        node.want(FetchOrder(version=VERSION, code="fetch_waits", message="node-1 fetches it from the registry first"))
        await node.until(lambda: node.work._fetches)
        assert (node.report.code, node.report.rate, node.report.there) == ("fetch_waits", None, 0)
        assert "node-1" in node.report.message
        await node.until(lambda: node.told == 1)
        await asyncio.sleep(0.2)
        assert node.told == 1
        node.want(FetchOrder(version=VERSION, code="no_mirror", message="nobody fetches"))
        await node.until(lambda: node.told == 2)


async def test_a_few_versions_at_a_time(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        names = [f"ver_000000000{number}" for number in range(1, 5)]
        holder = await town.hold("a", FILES)
        for name in names[1:]:
            holders.put(holder.store, FILES, version=name)
        holder.stalls = True
        async with at_work(Node(town.asker.config, town.calls(), *(replace(BARE, id=name) for name in names))) as node:
            node.want(*(FetchOrder(version=name, sources=(holder.source,)) for name in names))
            await node.until(lambda: sum(item.running for item in node.work._fetches.values()) == fetching.TOGETHER)
            await asyncio.sleep(0.1)
            assert sum(item.rate is not None for item in node.work.reports()) == fetching.TOGETHER
            holder.stalls = False
            for name in names:
                await node.whole(name)


async def test_a_list_that_controllers_cannot_give_is_said_and_one_of_another_version_refused(tmp_path: Path) -> None:
    async with alone(tmp_path) as node:
        node.want(FROM_REGISTRY)
        await node.until(lambda: node.report.code == "manifest_unavailable")
        assert "version_unknown" in node.report.message
        node.manifests[VERSION] = replace(BARE, id="ver_0000000002")
        await node.until(lambda: node.report.code == "manifest_bad")


async def test_a_disk_that_fails_is_named(tmp_path: Path, hub: Hub) -> None:
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base) as node:
        node.config.store.write_text("no folder")
        node.want(FROM_REGISTRY)
        await node.until(lambda: node.report.code == "fetch_failed")
        assert str(node.config.store) in node.report.message
        node.config.store.unlink()
        await node.whole()


async def test_room_is_made_of_what_nobody_uses_and_of_nothing_else(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once when something may go, however long the next try was put off."""
    monkeypatch.setattr(fetch_plan, "FIRST_PAUSE", 600.0)
    monkeypatch.setattr(fetch_plan, "LATER", 3600.0)
    size = BARE.size
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base, LLMGW_STORE_LIMIT=str(2 * size + 10)) as node:
        old, other = "ver_0000000007", "ver_0000000008"
        holders.put(node.config.store, OTHERS, version=old)
        holders.put(node.config.store, OTHERS, version=other)
        node.used.add(old)
        node.want(FROM_REGISTRY, kept=(other,))
        await node.until(lambda: node.report.code == "store_full")
        node.want(FROM_REGISTRY, kept=())
        await node.whole()
        assert {item.manifest.id for item in node.store.versions()} == {old, VERSION}


async def test_what_is_wanted_while_a_fetch_compares_files_is_not_removed_to_make_room(
    tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = BARE.size
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base, LLMGW_STORE_LIMIT=str(2 * size + 10)) as node:
        first, second, third = (f"ver_000000000{number}" for number in range(2, 5))
        for at, version in enumerate((first, second, third)):
            content = {name: data + bytes([at]) for name, data in OTHERS.items()}
            holders.put(node.config.store, content, version=version)
            os.utime(node.config.store / version / "whole", (at + 1, at + 1))
        others, remove = node.store.others, node.store.remove

        def long(manifest: Manifest) -> Any:
            node.used.add(first)  # a replica begins
            return others(manifest)

        def slowly(version: str) -> bool:
            node.used.add(third)  # and another one
            return remove(version)

        monkeypatch.setattr(node.store, "others", long)
        monkeypatch.setattr(node.store, "remove", slowly)
        node.want(FROM_REGISTRY, kept=())
        await node.until(lambda: node.report.code == "store_full")
        assert {item.manifest.id for item in node.store.versions() if item.whole} == {first, third}


async def test_a_data_node_removes_what_nobody_names_once_it_was_told(tmp_path: Path) -> None:
    old, used, kept, half = (f"ver_000000000{number}" for number in range(2, 6))
    async with alone(tmp_path) as node:
        for version in (old, used, kept):
            holders.put(node.config.store, FILES, version=version)
        holders.put(node.config.store, FILES, version=half, whole=False)
        node.used.add(used)
        node.data = True
        node.want()  # by controllers that say nothing of it
        await asyncio.sleep(0.5)
        assert len(node.store.versions()) == 4
        node.data = False
        node.want(kept=(kept,), removed=(old,))
        await node.until(lambda: len(node.store.versions()) == 3)  # the half one
        await asyncio.sleep(0.4)
        node.data = True
        await node.until(lambda: len(node.store.versions()) == 2)
        await asyncio.sleep(0.3)
        assert {item.manifest.id for item in node.store.versions()} == {used, kept}
        await node.until(lambda: node.changes == 2)


@pytest.mark.parametrize("kept", [(), ("ver_0000000004",)])
async def test_a_data_node_keeps_for_long_what_the_controllers_do_not_know_that_somebody_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: tuple[str, ...]
) -> None:
    """As after their database was made anew, or restored from before a version was made."""
    newer, half, older = "ver_0000000002", "ver_0000000003", "ver_0000000004"
    async with alone(tmp_path) as node:
        for version in (newer, older):
            holders.put(node.config.store, FILES, version=version)
        holders.put(node.config.store, FILES, version=half, whole=False)
        node.data = True
        node.want(kept=kept)
        await node.until(lambda: len(node.store.versions()) == 2)  # what is not whole is no loss
        await asyncio.sleep(0.4)
        assert [item.manifest.id for item in node.store.versions()] == [newer, older]
        monkeypatch.setattr(fetch_plan, "REMOVE_ALL_AFTER", 0.3)
        await node.until(lambda: [item.manifest.id for item in node.store.versions()] == list(kept))


async def test_what_is_wanted_again_while_another_is_removed_stays(tmp_path: Path) -> None:
    first, second, third = (f"ver_000000000{number}" for number in range(2, 5))
    async with alone(tmp_path) as node:
        for version in (first, second):
            holders.put(node.config.store, FILES, version=version)
        remove = node.store.remove

        def slowly(version: str) -> bool:
            node.want(kept=(second, third), removed=(first,))
            return remove(version)

        node.store.remove = slowly  # type: ignore[method-assign]
        node.data = True
        node.want(kept=(third,), removed=(first, second))
        await node.until(lambda: len(node.store.versions()) < 2)
        await asyncio.sleep(0.4)
        assert [item.manifest.id for item in node.store.versions()] == [second]


async def test_no_room_is_made_before_a_controller_has_said_what_must_stay(tmp_path: Path, hub: Hub) -> None:
    """An agent that starts anew has its orders from its disk, and goes on with them while no controller answers."""
    old = "ver_0000000007"
    async with alone(tmp_path, of_hub(hub), HF_ENDPOINT=hub.base, LLMGW_STORE_LIMIT=str(BARE.size + 10)) as node:
        holders.put(node.config.store, OTHERS, version=old)
        node.work.order([FROM_REGISTRY])
        await asyncio.sleep(0.3)
        assert [item.manifest.id for item in node.store.versions()] == [old]
        node.want(FROM_REGISTRY, kept=(old,))
        await node.until(lambda: node.report.code == "store_full")
        node.want(FROM_REGISTRY, kept=())
        await node.whole()


async def test_removals_that_were_broken_off_are_finished_at_the_start(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        town.publish()
        gone = town.asker.config.store / ".gone-ver_0000000009-17"
        gone.mkdir(parents=True)
        (gone / "big").write_bytes(b"x")
        async with at_work(Node(town.asker.config, town.calls())) as node:
            await node.until(lambda: not gone.exists())
        assert list(town.asker.config.store.iterdir()) == []


async def test_what_was_lost_is_fetched_again_while_it_is_ordered(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        holder = await town.hold("a", FILES)
        async with at_work(Node(town.asker.config, town.calls(), BARE)) as node:
            node.want(FetchOrder(version=VERSION, sources=(holder.source,)))
            await node.whole()
            node.store.remove(VERSION)
            assert node.store.path(VERSION) is None
            await node.whole()
            assert node.store.path(VERSION) is not None


async def test_a_disk_that_takes_nothing_any_more_is_full_and_what_it_lacked_comes_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with holders.town(tmp_path) as town:
        holder = await town.hold("a", FILES)
        async with at_work(Node(town.asker.config, town.calls(), BARE)) as node:
            full, fetch = [True], Store.fetch

            def at_its_end(store: Store, *args: Any, **words: Any) -> None:
                if full[0]:
                    raise OSError(errno.ENOSPC, "No space left on device")
                fetch(store, *args, **words)

            monkeypatch.setattr(Store, "fetch", at_its_end)
            node.want(FetchOrder(version=VERSION, sources=(holder.source,)))
            await node.until(lambda: node.report.code == "disk_full")
            assert "No space left" in node.report.message
            full[0] = False
            await node.whole()


async def test_a_node_that_gives_wrong_bytes_is_passed_over_and_named(tmp_path: Path) -> None:
    async with holders.town(tmp_path) as town:
        bad, good = await town.hold("bad", FILES), await town.hold("good", FILES)
        bad.wrong = True
        async with at_work(Node(town.asker.config, town.calls(), BARE)) as node:
            node.want(FetchOrder(version=VERSION, sources=(bad.source, good.source)))
            await node.until(lambda: node.report.code == "file_wrong")
            assert node.report.failed == ("node_bad",)
            assert node.report.there < node.report.size  # what was discarded is not told as being there
            await node.whole()
