"""Files that another version has already are taken from there: fetched once, counted once, and either version may go."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.domain.manifests import Manifest
from catalog.mirror.store import Store
from llmgw_site.lib.errors import Refused
from tests.catalog.mirror.test_store import Memory, manifest

TOP = Path(__file__).parents[3]
SHARD, OTHER, NEWER = b"shard" * 5000, b"other" * 4000, b"newer" * 4000
NAMES = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")


def version(number: int, *content: bytes) -> tuple[Manifest, Memory]:
    files = {f"m-{at:05d}-of-{len(content):05d}.gguf": data for at, data in enumerate(content, start=1)}
    return manifest(files, number=number, first=next(iter(files))), Memory(files)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", reserve=0)


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refused)


def content(store: Store, wanted: Manifest) -> list[bytes]:
    folder = store.path(wanted.id, "")
    assert folder is not None
    return [(folder / file.path).read_bytes() for file in wanted.files]


def inode(store: Store, wanted: Manifest, at: int) -> int:
    return (store.root / wanted.id / "files" / wanted.files[at].path).stat().st_ino


def test_an_unchanged_file_gets_a_second_name_and_is_not_fetched(store: Store) -> None:
    (one, first), (two, second) = version(1, SHARD, OTHER), version(2, SHARD, NEWER)
    store.fetch(one, first)
    told: list[int] = []
    here: list[int] = []
    store.fetch(two, second, tell=told.append, here=here.append)
    assert second.asked == [NAMES[1]]
    assert content(store, two) == [SHARD, NEWER]
    assert (inode(store, one, 0) == inode(store, two, 0), here[-1]) == (True, len(SHARD))
    assert (told[-1], told) == (two.size, sorted(told))
    store.remove(one.id)
    assert content(store, two) == [SHARD, NEWER]


def test_a_file_of_another_name_and_of_a_version_that_is_not_whole_serves_as_well(store: Store) -> None:
    one, first = version(1, OTHER, SHARD, NEWER)
    first.content["m-00003-of-00003.gguf"] = b"wrong" * 4000
    with pytest.raises(Refused):
        store.fetch(one, first)
    two, second = version(2, SHARD)
    store.fetch(two, second)
    assert (second.asked, content(store, two)) == ([], [SHARD])


@pytest.mark.usefixtures("no_links")
def test_where_the_disk_gives_no_second_name_the_file_is_copied(store: Store) -> None:
    (one, first), (two, second) = version(1, SHARD, OTHER), version(2, SHARD, NEWER)
    store.fetch(one, first)
    here: list[int] = []
    store.fetch(two, second, here=here.append)
    assert (second.asked, here[-1]) == ([NAMES[1]], len(SHARD))
    assert inode(store, one, 0) != inode(store, two, 0)
    assert content(store, two) == [SHARD, NEWER]


@pytest.mark.parametrize("damage", [SHARD[:-1], SHARD[:100] + b"X" + SHARD[101:], None])
@pytest.mark.parametrize("links", [True, False])
def test_a_torn_file_is_not_taken(
    store: Store, damage: bytes | None, links: bool, request: pytest.FixtureRequest
) -> None:
    if not links:
        request.getfixturevalue("no_links")
    (one, first), (two, second) = version(1, SHARD, OTHER), version(2, SHARD, NEWER)
    store.fetch(one, first)
    torn = store.root / one.id / "files" / NAMES[0]
    torn.unlink()
    if damage is None:
        torn.symlink_to(store.root / one.id / "files" / NAMES[1])
    else:
        torn.write_bytes(damage)
    store.fetch(two, second)
    assert (second.asked, content(store, two)) == (list(NAMES), [SHARD, NEWER])
    assert not [path for path in (store.root / two.id / "files").iterdir() if path.name not in NAMES]


def test_what_was_begun_of_a_file_goes_when_another_version_has_it(store: Store) -> None:
    (one, first), (two, second) = version(1, SHARD), version(2, SHARD)
    second.go_on.clear()
    stop = threading.Event()
    running = threading.Thread(target=_stopped, args=(store, two, second, stop))
    running.start()
    assert second.entered.wait(60)
    assert (store.root / two.id / "files" / "m-00001-of-00001.gguf.part").exists()
    stop.set()
    second.go_on.set()
    running.join(60)
    store.fetch(one, first)
    store.fetch(two, Memory({}))
    assert [path.name for path in (store.root / two.id / "files").iterdir()] == ["m-00001-of-00001.gguf"]


def _stopped(store: Store, wanted: Manifest, origin: Memory, stop: threading.Event) -> None:
    with pytest.raises(Refused):
        store.fetch(wanted, origin, stop=stop)


def test_what_is_shared_counts_once_against_the_limit_and_is_no_reason_to_remove_anything(store: Store) -> None:
    (one, first), (two, second), (three, third) = version(1, SHARD, OTHER), version(2, SHARD, NEWER), version(3, SHARD)
    store.limit = len(SHARD + OTHER + NEWER)
    store.fetch(one, first)
    store.fetch(two, second, kept=lambda: {one.id})
    store.fetch(three, third, kept=lambda: {one.id, two.id})
    assert [item.manifest.id for item in store.versions()] == [one.id, two.id, three.id]
    more, fourth = version(4, b"x")
    with pytest.raises(Refused) as refused:
        store.fetch(more, fourth, kept=lambda: {one.id, two.id, three.id})
    assert (refused.value.code, "63.5 KiB must stay" in refused.value.message) == ("store_full", True)
    os.utime(store.root / three.id / "whole", (1, 1))  # used longest ago, but it frees nothing
    os.utime(store.root / one.id / "whole", (2, 2))
    store.fetch(more, fourth)
    assert [item.manifest.id for item in store.versions()] == [two.id, three.id, more.id]


def test_a_file_is_taken_before_its_version_goes_to_make_room(store: Store) -> None:
    (one, first), (two, second) = version(1, SHARD, OTHER), version(2, SHARD, NEWER)
    store.limit = len(SHARD + NEWER)
    store.fetch(one, first)
    store.fetch(two, second)
    assert [item.manifest.id for item in store.versions()] == [two.id]
    assert (second.asked, content(store, two)) == ([NAMES[1]], [SHARD, NEWER])


PARTS = [bytes([65 + at]) * (700 + at) for at in range(5)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["fetch", "fetch", "remove"]), st.integers(1, 4), st.booleans()), max_size=12
)


@settings(max_examples=30)
@given(
    parts=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=3), min_size=4, max_size=4),
    steps=STEPS,
    limit=st.integers(1, 5),
)
def test_versions_that_share_files_never_hurt_each_other(
    parts: list[list[int]], steps: list[tuple[str, int, bool]], limit: int
) -> None:
    """What is in the store is never asked for, every version that is whole has its own bytes, and the disk keeps to the limit."""
    with TemporaryDirectory() as folder:
        store = Store(Path(folder), limit=limit * 750, reserve=0)
        for verb, number, all_kept in steps:
            wanted, origin = version(number, *(PARTS[at] for at in parts[number - 1]))
            held = {file.sha256 for item in store.versions() if item.whole for file in item.manifest.files}
            before = [item.manifest.id for item in store.versions() if item.whole]
            if verb == "remove":
                store.remove(wanted.id)
            else:
                with suppress(Refused):  # store_full
                    store.fetch(wanted, origin, kept=partial(tuple, before if all_kept else ()))
                asked = [file.sha256 for file in wanted.files if file.path in origin.asked]
                assert not set(asked) & held
            whole = [item.manifest for item in store.versions() if item.whole]
            assert not (verb == "fetch" and all_kept and set(before) - {item.id for item in whole})
            for item in whole:
                assert content(store, item) == [PARTS[at] for at in parts[int(item.id[-1]) - 1]]
            files = [path for path in store.root.rglob("*.gguf") if path.is_file()]
            assert sum({path.stat().st_ino: path.stat().st_size for path in files}.values()) <= limit * 750


PROGRAM = """
import os, sys, time
sys.path.insert(0, {top!r})
from pathlib import Path
from catalog.mirror.store import Store
from tests.catalog.mirror.test_shared import big
if {no_links}:
    def refused(*args, **kwargs):
        raise OSError(1, "")
    os.link = refused
store = Store(Path(sys.argv[1]), reserve=0)
wanted, origin = big(2)
def tell(done):
    print(done, flush=True)
    time.sleep(0.01)
store.fetch(wanted, origin, tell=tell)
print("asked", origin.asked, flush=True)
"""


def big(number: int) -> tuple[Manifest, Memory]:
    return version(number, b"first" * (4 << 20), b"same" * (4 << 20), bytes([number]) * 1000)


@pytest.mark.parametrize("no_links", [False, True])
def test_a_fetch_that_is_killed_while_it_takes_files_goes_on_and_hurts_neither_version(
    tmp_path: Path, no_links: bool
) -> None:
    one, first = big(1)
    store = Store(tmp_path / "store", reserve=0)
    store.fetch(one, first)
    before = content(store, one)
    program = PROGRAM.format(top=str(TOP), no_links=no_links)
    args = [sys.executable, "-c", program, str(store.root)]
    for enough in (3 << 20, 21 << 20, 30 << 20):
        with subprocess.Popen(args, cwd=TOP, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("asked") or int(line) >= enough:
                    break
            process.send_signal(signal.SIGKILL)
    done = subprocess.run(args, cwd=TOP, check=True, timeout=120, capture_output=True, text=True)
    two, _ = big(2)
    assert done.stdout.splitlines()[-1] == f"asked {[two.files[2].path]}"
    assert content(store, two)[:2] == before[:2]
    assert content(store, one) == before
    assert sorted(path.name for path in (store.root / two.id / "files").iterdir()) == [f.path for f in two.files]
    store.remove(one.id)
    assert content(store, two)[:2] == before[:2]
