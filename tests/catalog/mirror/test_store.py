"""The versions of a machine: whole or not given, one fetch at a time, room made of what nobody needs."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.mirror.store import Store
from llmgw_site.lib.errors import Refused

CONTENT = {"sub/m-Q8_0.gguf": b"weights" * 1000, "README.md": b"read me"}


class Memory:
    """An origin that holds files in memory. `asked`: their paths, as they were asked for."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self.content = dict(content)
        self.asked: list[str] = []
        self.entered, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        self.asked.append(path)
        self.entered.set()
        assert self.go_on.wait(60)
        yield httpx.Response(200, stream=httpx.ByteStream(self.content[path][start:end]))


def manifest(
    content: Mapping[str, bytes] = CONTENT, *, number: int = 1, first: str = "sub/m-Q8_0.gguf", **more: object
) -> Manifest:
    files = tuple(
        ManifestFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in content.items()
    )
    return Manifest(id=f"ver_{number:010d}", files=files, first=first, **{"format": Format.GGUF, **more})  # type: ignore[arg-type]


def only(size: int, number: int) -> tuple[Manifest, Memory]:
    content = {"m.gguf": bytes([number]) * size}
    return manifest(content, number=number, first="m.gguf"), Memory(content)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store", reserve=0)


def test_a_version_is_given_when_it_is_whole(store: Store) -> None:
    origin, wanted = Memory(CONTENT), manifest()
    told: list[int] = []
    assert (store.versions(), store.path(wanted.id)) == ([], None)
    store.fetch(wanted, origin, tell=told.append)
    path = store.path(wanted.id)
    assert path is not None
    assert path.read_bytes() == CONTENT["sub/m-Q8_0.gguf"]
    status = store.status(wanted.id)
    assert status is not None
    assert (status.manifest, status.whole, status.there) == (wanted, True, wanted.size)
    assert told[-1] == wanted.size
    with store.opened(wanted.id, "README.md") as (handle, file):
        assert os.read(handle, 100) == b"read me"
        assert file.size == 7


def test_a_whole_version_is_not_fetched_again(store: Store) -> None:
    origin, wanted = Memory(CONTENT), manifest()
    store.fetch(wanted, origin)
    store.fetch(wanted, origin)
    assert sorted(origin.asked) == ["README.md", "sub/m-Q8_0.gguf"]


def test_a_version_that_is_not_whole_is_given_to_nobody_and_goes_on(store: Store) -> None:
    wrong, wanted = Memory({**CONTENT, "README.md": b"wrong!!"}), manifest()
    with pytest.raises(Refused) as refused:
        store.fetch(wanted, wrong)
    assert refused.value.code == "file_wrong"
    status = store.status(wanted.id)
    assert status is not None
    assert (status.whole, status.there, store.path(wanted.id)) == (False, len(CONTENT["sub/m-Q8_0.gguf"]), None)
    with pytest.raises(Refused) as refused, store.opened(wanted.id, "sub/m-Q8_0.gguf"):
        pass
    assert refused.value.code == "weights_not_here"
    good = Memory(CONTENT)
    store.fetch(wanted, good)
    assert good.asked == ["README.md"]
    assert store.path(wanted.id) is not None


def test_one_fetch_at_a_time(store: Store) -> None:
    origin, wanted = Memory(CONTENT), manifest()
    origin.go_on.clear()
    first = threading.Thread(target=store.fetch, args=(wanted, origin))
    first.start()
    try:
        assert origin.entered.wait(60)
        with pytest.raises(Refused) as refused:
            store.fetch(wanted, origin)
        assert refused.value.code == "fetch_running"
        with pytest.raises(Refused):
            store.remove(wanted.id)
    finally:
        origin.go_on.set()
        first.join()
    assert store.path(wanted.id) is not None


def test_room_is_made_of_the_version_that_was_used_longest_ago(store: Store) -> None:
    store.limit = 1000
    for number, used in ((1, 300), (2, 100), (3, 200)):
        wanted, origin = only(300, number)
        store.fetch(wanted, origin)
        os.utime(store.root / wanted.id / "whole", (used, used))
    wanted, origin = only(400, 4)
    store.fetch(wanted, origin)
    assert [item.manifest.id[-1] for item in store.versions()] == ["1", "3", "4"]
    wanted, origin = only(500, 5)
    with pytest.raises(Refused) as refused:
        store.fetch(wanted, origin, kept=lambda: {f"ver_{number:010d}" for number in (1, 3, 4)})
    assert refused.value.code == "store_full"
    assert "llmgw mirror list" in refused.value.message
    assert "LLMGW_STORE_LIMIT" in refused.value.message
    assert origin.asked == []


def test_use_is_remembered(store: Store) -> None:
    wanted = manifest()
    store.fetch(wanted, Memory(CONTENT))
    os.utime(store.root / wanted.id / "whole", (100, 100))
    assert store.path(wanted.id) is not None
    status = store.status(wanted.id)
    assert status is not None
    assert status.used_at > 100


def test_a_removed_version_is_gone(store: Store) -> None:
    wanted = manifest()
    store.fetch(wanted, Memory(CONTENT))
    assert store.remove(wanted.id)
    assert (store.remove(wanted.id), store.versions(), list(store.root.iterdir())) == (False, [], [])


def test_a_removal_that_was_broken_off_is_finished(store: Store) -> None:
    (store.root / ".gone-ver_0000000001-1" / "files").mkdir(parents=True)
    store.tidy()
    assert list(store.root.iterdir()) == []


def test_files_without_a_checksum_are_not_fetched(store: Store) -> None:
    wanted = Manifest(
        id="ver_0000000009", format=Format.GGUF, files=(ManifestFile(path="m.gguf", size=3),), first="m.gguf"
    )
    origin = Memory({"m.gguf": b"abc"})
    with pytest.raises(Refused) as refused:
        store.fetch(wanted, origin)
    assert (refused.value.code, origin.asked) == ("weights_unchecked", [])


def index(*names: str) -> bytes:
    return json.dumps({"weight_map": {f"t{at}": name for at, name in enumerate(names)}}).encode()


def test_a_set_without_a_part_that_its_index_names_is_not_whole(store: Store) -> None:
    whole = {"model-1.safetensors": b"a", "model.safetensors.index.json": index("model-1.safetensors")}
    store.fetch(manifest(whole, number=1, first="", format=Format.SAFETENSORS), Memory(whole))
    assert store.path("ver_0000000001") == store.root / "ver_0000000001" / "files"
    for number, text, code in (
        (2, index("model-2.safetensors"), "weights_incomplete"),
        (3, b"{}", "safetensors_bad_index"),
    ):
        content = {**whole, "model.safetensors.index.json": text}
        wanted = manifest(content, number=number, first="", format=Format.SAFETENSORS)
        with pytest.raises(Refused) as refused:
            store.fetch(wanted, Memory(content))
        assert refused.value.code == code
        assert store.path(wanted.id) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"id": "ver_0000000002"}'])
def test_a_damaged_manifest_is_no_version(store: Store, damage: bytes) -> None:
    wanted = manifest()
    store.fetch(wanted, Memory(CONTENT))
    (store.root / wanted.id / "manifest.json").write_bytes(damage)
    assert (store.versions(), store.path(wanted.id)) == ([], None)
    again = Memory(CONTENT)
    store.fetch(wanted, again)
    assert again.asked == []  # its files got their names when they were checked
    assert store.path(wanted.id) is not None


@pytest.mark.parametrize("name", ["../x", "ver_", "", "ver_000000000/x", ".gone-ver_0000000001-1"])
def test_names_that_are_no_versions_lead_nowhere(store: Store, name: str) -> None:
    assert store.status(name) is None
    assert store.path(name) is None
    assert store.remove(name) is False


def test_a_link_in_the_place_of_a_file_is_not_followed(store: Store, tmp_path: Path) -> None:
    wanted = manifest()
    store.fetch(wanted, Memory(CONTENT))
    (tmp_path / "secret").write_text("secret")
    file = store.root / wanted.id / "files" / "README.md"
    file.unlink()
    file.symlink_to(tmp_path / "secret")
    with pytest.raises(Refused) as refused, store.opened(wanted.id, "README.md"):
        pass
    assert refused.value.code == "weights_not_here"


@pytest.mark.parametrize("harm", ["gone", "cut", "link"])
def test_a_version_of_which_a_file_was_lost_is_not_whole_and_gets_that_file_again(
    store: Store, tmp_path: Path, harm: str
) -> None:
    wanted = manifest()
    store.fetch(wanted, Memory(CONTENT))
    file = store.root / wanted.id / "files" / "README.md"
    if harm == "cut":
        os.truncate(file, 3)
    else:
        file.unlink()
    if harm == "link":
        (tmp_path / "other").write_bytes(CONTENT["README.md"])
        file.symlink_to(tmp_path / "other")
    status = store.status(wanted.id)
    assert status is not None
    assert (status.whole, status.there) == (False, wanted.size - len(CONTENT["README.md"]))
    assert store.path(wanted.id) is None
    again = Memory(CONTENT)
    store.fetch(wanted, again)
    assert set(again.asked) == {"README.md"}
    assert (file.is_symlink(), file.read_bytes()) == (False, CONTENT["README.md"])
    assert store.path(wanted.id) is not None


def test_what_is_on_its_way_counts_against_the_limit_as_it_will_be(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", limit=1500, reserve=0)
    (one, slow), (two, other) = only(1000, 1), only(1000, 2)
    slow.go_on.clear()
    running = threading.Thread(target=store.fetch, args=(one, slow), kwargs={"kept": lambda: (two.id,)})
    running.start()
    assert slow.entered.wait(60)
    with pytest.raises(Refused) as refused:
        store.fetch(two, other, kept=lambda: (one.id,))
    assert (refused.value.code, other.asked) == ("store_full", [])
    slow.go_on.set()
    running.join(60)
    assert store.path(one.id) is not None
    store.remove(one.id)
    store.fetch(two, other)


def test_the_disk_must_have_room_for_all_files_before_the_first_is_fetched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {f"m-{number:05d}-of-00003.gguf": bytes([number]) * 10_000 for number in (1, 2, 3)}
    wanted, origin = manifest(content, first="m-00001-of-00003.gguf"), Memory(content)
    real = os.statvfs

    def small(path: str) -> os.statvfs_result:
        found = list(real(path))
        found[1], found[4] = 1, 25_000  # f_frsize, f_bavail
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(Refused) as refused:
        store.fetch(wanted, origin)
    assert (refused.value.code, origin.asked) == ("disk_full", [])
    assert "29.3 KiB more" in refused.value.message
    monkeypatch.setattr(os, "statvfs", real)
    store.fetch(wanted, origin)
