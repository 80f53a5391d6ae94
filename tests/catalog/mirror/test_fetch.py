"""One file is fetched whole, whatever the server and the network do: a real hub over real sockets."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.domain.spans import SEGMENT
from catalog.mirror import fetch as fetching
from catalog.mirror.fetch import Origin, Wanted, fetch
from catalog.mirror.origins import FromAddresses, FromRegistry
from catalog.registry.client import Registry
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.outgoing import Guard
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import wait_for

TOP = Path(__file__).resolve().parents[3]
SIZE = 5 * SEGMENT + 12_345
NAME = "big file-Q8_0.gguf"


class FromHub:
    """An origin: one commit of a repository of a registry."""

    def __init__(self, registry: Registry, commit: str) -> None:
        self._registry, self._commit = registry, commit

    def opened(self, path: str, *, start: int, end: int | None) -> AbstractContextManager[httpx.Response]:
        return self._registry.opened("org/big", self._commit, path, start=start, end=end)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hub") / "big"
    with path.open("wb") as file:
        for at in range(0, SIZE, 1 << 20):
            file.write(hashlib.shake_128(str(at).encode()).digest(min(1 << 20, SIZE - at)))
    return path


@pytest.fixture(scope="module")
def serving(content: Path) -> Iterator[Hub]:
    with running() as hub:
        hub.add(Repo("org/big")).commit({NAME: content, "config.json": b'{"small": true}', "empty.txt": b""})
        yield hub


@pytest.fixture
def hub(serving: Hub) -> Hub:
    serving.faults.reset()
    serving.seen.clear()
    serving.signed.clear()
    return serving


@pytest.fixture
def origin(hub: Hub) -> Iterator[FromHub]:
    with Registry(guard=Guard(private=True, proxies={}), endpoint=hub.base) as registry:
        yield FromHub(registry, hub.repos["org/big"].head)


@pytest.fixture(params=["registry", "addresses"])
def either(request: pytest.FixtureRequest, hub: Hub, wanted: Wanted) -> Iterator[Origin]:
    """As an agent asks: a commit of a repository, or a plain address."""
    guard, commit = Guard(private=True, proxies={}), hub.repos["org/big"].head
    if request.param == "registry":
        files = (ManifestFile(path=NAME, size=wanted.size, sha256=wanted.sha256),)
        told = Manifest(id="ver_1", format=Format.GGUF, first=NAME, files=files, repository="org/big", commit=commit)
        with Registry(guard=guard, endpoint=hub.base) as registry:
            yield FromRegistry(registry, told)
    else:
        with FromAddresses(guard, {NAME: f"{hub.base}/org/big/resolve/{commit}/{quote(NAME)}"}) as addresses:
            yield addresses


@pytest.fixture
def wanted(hub: Hub) -> Wanted:
    file = hub.repos["org/big"].commits[hub.repos["org/big"].head][NAME]
    return Wanted(path=NAME, size=file.size, sha256=file.sha256)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(fetching, "LONGEST_PAUSE", 0.02)


def bodies(hub: Hub) -> list[dict[str, Any]]:
    return [item for item in hub.seen if item["method"] == "GET" and item["path"].startswith("/cdn/")]


def same(target: Path, content: Path) -> bool:
    return target.read_bytes() == content.read_bytes() and [item.name for item in target.parent.iterdir()] == [
        target.name
    ]


def test_a_file_is_fetched_over_several_connections_and_checked(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    told: list[int] = []
    fetch(wanted, tmp_path / "w" / NAME, origin, tell=told.append)
    assert same(tmp_path / "w" / NAME, content)
    assert hub.sent() == SIZE
    assert len(bodies(hub)) == 6  # one segment each
    assert max(told) == SIZE


def test_a_small_file_is_checked_by_what_git_says_of_it(hub: Hub, origin: FromHub, tmp_path: Path) -> None:
    files = hub.repos["org/big"].commits[hub.repos["org/big"].head]
    for name in ("config.json", "empty.txt"):
        fetch(Wanted(path=name, size=files[name].size, blob=files[name].blob), tmp_path / name, origin)
    assert (tmp_path / "config.json").read_bytes() == b'{"small": true}'
    assert (tmp_path / "empty.txt").read_bytes() == b""
    with pytest.raises(Refused) as refused:
        fetch(Wanted(path="config.json", size=files["config.json"].size, blob="0" * 40), tmp_path / "other", origin)
    assert refused.value.code == "file_wrong"


def test_f13_a_connection_that_is_cut_goes_on_where_it_was(
    hub: Hub, either: Origin, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.cut_after, hub.faults.cuts = 3 << 20, 2
    fetch(wanted, tmp_path / NAME, either, connections=1)
    assert same(tmp_path / NAME, content)
    assert hub.sent() == SIZE  # not one byte twice
    starts = [int(item["range"].removeprefix("bytes=").partition("-")[0]) for item in bodies(hub) if item["range"]]
    assert starts == [3 << 20, 6 << 20]


def test_f12_a_server_that_ignores_ranges_sends_the_file_over_and_nothing_is_appended(
    hub: Hub, either: Origin, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.cut_after, hub.faults.cuts, hub.faults.ignore_range = 9 << 20, 1, True
    fetch(wanted, tmp_path / NAME, either, connections=1)
    assert same(tmp_path / NAME, content)
    assert bodies(hub)[-1]["sent"] == SIZE


def test_f12_bytes_of_another_place_than_was_asked_for_are_not_taken(
    hub: Hub, either: Origin, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.cut_after, hub.faults.cuts, hub.faults.other_range = 9 << 20, 1, True
    with pytest.raises(Refused) as refused:
        fetch(wanted, tmp_path / NAME, either, connections=1)
    assert refused.value.code == "file_changed"
    assert "HTTP 206 with 'bytes 0-" in refused.value.message
    hub.faults.reset()
    fetch(wanted, tmp_path / NAME, either, connections=1)
    assert same(tmp_path / NAME, content)


def test_a_server_that_ignores_ranges_is_asked_by_one_connection(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.ignore_range = True
    fetch(wanted, tmp_path / NAME, origin, connections=4)
    assert same(tmp_path / NAME, content)
    assert bodies(hub)[-1]["range"] == ""


class Endless(httpx.SyncByteStream):
    """An origin that ignores ranges, says no length, and sends on when the file is over. `most`: pieces until it gives up."""

    def __init__(self, content: bytes, most: int) -> None:
        self.content, self.left = content, most

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        yield httpx.Response(200, stream=self)

    def __iter__(self) -> Iterator[bytes]:
        yield self.content
        while self.left:
            self.left -= 1
            yield b"more"


def test_of_a_server_that_ignores_ranges_and_never_ends_no_more_is_read_than_the_file(tmp_path: Path) -> None:
    content = bytes(SEGMENT + 1)
    endless = Endless(content, 1000)
    wanted = Wanted(path="m", size=len(content), sha256=hashlib.sha256(content).hexdigest())
    fetch(wanted, tmp_path / "m", endless, connections=2, reserve=0)
    assert (tmp_path / "m").read_bytes() == content
    assert endless.left == 1000


class Trickling(httpx.SyncByteStream):
    """An origin whose first answer brings a few bytes now and then, and the others all at once."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.asked: list[int] = []

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        self.asked.append(start)
        told = {"content-range": f"bytes {start}-{len(self.content) - 1}/{len(self.content)}"}
        yield httpx.Response(206 if start else 200, stream=self, headers=told if start else {})

    def __iter__(self) -> Iterator[bytes]:
        if len(self.asked) > 1:
            yield self.content[self.asked[-1] :]
        while True:
            yield self.content[:10]


def test_an_answer_that_trickles_is_given_up_and_another_one_goes_on_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TRICKLE", 0.0)
    content = bytes(SEGMENT)
    trickling = Trickling(content)
    wanted = Wanted(path="m", size=len(content), sha256=hashlib.sha256(content).hexdigest())
    fetch(wanted, tmp_path / "m", trickling, connections=1, reserve=0)
    assert (tmp_path / "m").read_bytes() == content
    assert trickling.asked == [0, 10]


def test_bytes_that_are_not_the_published_ones_are_discarded_and_named(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.wrong_bytes = True
    with pytest.raises(Refused) as refused:
        fetch(wanted, tmp_path / NAME, origin)
    assert refused.value.code == "file_wrong"
    assert NAME in refused.value.message
    assert wanted.sha256 in refused.value.message
    assert list(tmp_path.iterdir()) == []
    hub.faults.reset()
    fetch(wanted, tmp_path / NAME, origin)
    assert same(tmp_path / NAME, content)


@pytest.mark.parametrize("claim", [5, -5])
def test_a_file_of_another_length_is_refused(
    hub: Hub, origin: FromHub, wanted: Wanted, tmp_path: Path, claim: int
) -> None:
    other = Wanted(path=NAME, size=wanted.size + claim, sha256=wanted.sha256)
    with pytest.raises(Refused) as refused:
        fetch(other, tmp_path / NAME, origin)
    assert refused.value.code == "file_changed"


def test_addresses_that_expire_are_asked_for_anew(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.cut_after, hub.faults.cuts, hub.faults.rate_limits = 1 << 20, 4, 1
    hub.faults.rate_wait = 0
    fetch(wanted, tmp_path / NAME, origin)
    assert same(tmp_path / NAME, content)


def test_a_server_that_brings_nothing_is_given_up_and_what_came_stays(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    hub.faults.cut_after = 0
    with pytest.raises(Refused) as refused:
        fetch(wanted, tmp_path / NAME, origin, connections=1)
    assert refused.value.code == "fetch_broken"
    assert refused.value.retry_after is not None
    hub.faults.cut_after, hub.faults.cuts = 2 * SEGMENT + 7, 1
    hub.faults.server_errors = 0
    stop = threading.Event()
    with pytest.raises(Refused) as refused:
        fetch(
            wanted,
            tmp_path / NAME,
            origin,
            connections=1,
            stop=stop,
            tell=lambda done: stop.set() if done > 2 * SEGMENT else None,
        )
    assert refused.value.code == "fetch_stopped"
    hub.seen.clear()
    hub.faults.reset()
    fetch(wanted, tmp_path / NAME, origin, connections=1)
    assert same(tmp_path / NAME, content)
    assert hub.sent() == SIZE - 2 * SEGMENT


def test_a_part_of_another_file_is_not_taken_for_this_one(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(bytes(SIZE))
    (tmp_path / f"{NAME}.map").write_bytes(f"{SIZE} {'0' * 64}\n".encode() + b"\1" * 6)
    fetch(wanted, tmp_path / NAME, origin)
    assert same(tmp_path / NAME, content)


@pytest.mark.parametrize("garbage", [b"", b"\xff" * 1000, b"\1" * 40])
def test_a_damaged_map_costs_bytes_and_nothing_else(
    hub: Hub, origin: FromHub, wanted: Wanted, content: Path, tmp_path: Path, garbage: bytes
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(bytes(SIZE))
    (tmp_path / f"{NAME}.map").write_bytes(garbage)
    fetch(wanted, tmp_path / NAME, origin)
    assert same(tmp_path / NAME, content)


def test_a_file_that_does_not_fit_is_refused_before_its_first_byte(
    hub: Hub, origin: FromHub, wanted: Wanted, tmp_path: Path
) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize
    with pytest.raises(Refused) as refused:
        fetch(wanted, tmp_path / NAME, origin, reserve=free + (1 << 40))  # whatever others free meanwhile
    assert refused.value.code == "disk_full"
    assert "make room" in refused.value.message
    assert bodies(hub) == []
    assert list(tmp_path.iterdir()) == []


def test_a_stalled_connection_ends_at_a_stop(hub: Hub, origin: FromHub, wanted: Wanted, tmp_path: Path) -> None:
    hub.faults.chunk_pause = 0.05
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    began = time.monotonic()
    with pytest.raises(Refused) as refused:
        fetch(wanted, tmp_path / NAME, origin, stop=stop)
    assert refused.value.code == "fetch_stopped"
    assert time.monotonic() - began < 60


PROGRAM = """
import sys
from pathlib import Path
sys.path.insert(0, {top!r})
from catalog.mirror.fetch import Wanted, fetch
from catalog.registry.client import Registry
from llmgw_site.lib.outgoing import Guard
from tests.catalog.mirror.test_fetch import FromHub
base, commit, sha, size, target = sys.argv[1:]
with Registry(guard=Guard(private=True, proxies={{}}), endpoint=base) as registry:
    fetch(Wanted(path={name!r}, size=int(size), sha256=sha), Path(target), FromHub(registry, commit), connections=3)
"""


def killed_and_fetched(hub: Hub, wanted: Wanted, content: Path, target: Path, kills: list[float]) -> int:
    """Fetch in a process of its own that is killed when so much of the file was sent. Gives bytes that came twice."""
    program = PROGRAM.format(top=str(TOP), name=NAME)
    args = [
        sys.executable,
        "-c",
        program,
        hub.base,
        hub.repos["org/big"].head,
        wanted.sha256,
        str(wanted.size),
        str(target),
    ]
    for share in kills:
        hub.faults.hold_after = enough = hub.sent() + int(
            share * wanted.size
        )  # it goes no further, however late we look
        with subprocess.Popen(args, cwd=TOP) as process:
            wait_for(lambda enough=enough: hub.sent() >= enough, seconds=60)  # type: ignore[misc]
            process.send_signal(signal.SIGKILL)
    hub.faults.hold_after = None
    subprocess.run(args, cwd=TOP, check=True, timeout=120)
    assert same(target, content)
    return hub.sent() - wanted.size


def test_f11_a_fetch_that_was_killed_goes_on_by_itself(hub: Hub, wanted: Wanted, content: Path, tmp_path: Path) -> None:
    hub.faults.chunk_pause = 0.002
    twice = killed_and_fetched(hub, wanted, content, tmp_path / NAME, [0.3, 0.4])
    assert twice <= 2 * 3 * SEGMENT + 6 * (
        2 << 20
    )  # a segment for each connection and kill, and what lay in the sockets
