"""Manifests are vetted like anything from strangers; versions make room for others in a fair order."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.manifests import Held, Manifest, ManifestFile, manifest_from_dict, to_make_room, together
from catalog.domain.repository import Format
from llmgw_site.lib.errors import Refused

GOOD = Manifest(
    id="ver_0123456789", format=Format.GGUF, first="q/m.gguf", registry="https://hub.test", repository="org/m", commit="a" * 40,
    files=(
        ManifestFile(path="q/m.gguf", size=10, sha256="0" * 64),
        ManifestFile(path="config.json", size=0, blob="1" * 40, url="https://x.test/c"),
    ),
)  # fmt: skip


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert manifest_from_dict(GOOD.as_dict()) == GOOD
    assert GOOD.size == 10
    assert GOOD.file("config.json") == GOOD.files[1]
    assert GOOD.file("nothing") is None


def changed(**fields: Any) -> dict[str, Any]:
    return {**GOOD.as_dict(), **fields}


def with_file(**fields: Any) -> dict[str, Any]:
    return changed(first="", files=[{"path": "a.gguf", "size": 1, **fields}])


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, "x", changed(id="../x"), changed(id="ver_"), changed(id=3), changed(format="onnx"), changed(files=[]),
        changed(files=[3]), changed(files=[GOOD.files[0].__dict__] * 2), changed(first="other.gguf"), changed(commit="main"),
        changed(files=[{"path": "a", "size": 1}, {"path": "a/b", "size": 1}], first=""),
        *(changed(files=[{"path": "a", "size": 1}, {"path": f"a.{ending}", "size": 1}], first="") for ending in ("part", "map", "link", "part/b", "link/b/c")),
        with_file(path="../x"),
        with_file(path="/etc/passwd"), with_file(path="a/../../x"), with_file(path=""), with_file(path="a//b"),
        with_file(path="a\\b"), with_file(path="a\x00b"), with_file(path=".hidden"), with_file(path="a/.git/config"),
        with_file(path="a/"), with_file(path="x" * 600), with_file(path="m\u202effug.gguf"), with_file(path="a/" + "\u00e4" * 126), with_file(path=None), with_file(size=-1), with_file(size=1.5),
        with_file(size=True), with_file(size=None), with_file(size=1 << 61), with_file(sha256="zz"), with_file(blob="0" * 64),
        changed(files=[{"path": f"{at}", "size": 0} for at in range(2001)], first=""),
    ],
)  # fmt: skip
def test_a_bad_manifest_is_refused(data: Any) -> None:
    with pytest.raises(Refused) as refused:
        manifest_from_dict(data)
    assert refused.value.code == "manifest_bad"


def test_a_file_may_have_the_ending_of_one_on_its_way_where_no_other_is_in_its_way() -> None:
    files = [{"path": "a", "size": 1}, {"path": "index.js.map", "size": 1}]
    assert [file.path for file in manifest_from_dict(changed(files=files, first="")).files] == ["a", "index.js.map"]


OLD, NEW, USED = Held("old", {"o": 40}, 1.0), Held("new", {"n": 30}, 2.0), Held("used", {"u": 20}, 0.0)


@pytest.mark.parametrize(
    ("limit", "needed", "gone"),
    [
        (None, 10**9, ()),
        (100, 10, ()),
        (100, 11, ("old",)),
        (100, 50, ("old",)),
        (100, 51, ("old", "new")),
        (100, 80, ("old", "new")),
        (100, 81, None),
    ],
)
def test_the_least_recently_used_goes_first_and_no_more_than_it_takes(
    limit: int | None, needed: int, gone: tuple[str, ...] | None
) -> None:
    assert to_make_room([NEW, OLD, USED], limit=limit, needed={"x": needed}, kept={"used"}) == gone


@pytest.mark.parametrize(
    ("limit", "needed", "gone"),
    [
        (100, {"a": 40, "b": 10}, ()),  # a is there: it takes 10 more
        (80, {"a": 40, "b": 5}, ("two",)),  # the first frees nothing, as the next one has all of it
        (50, {"a": 40, "b": 5}, None),
        (50, {"b": 5}, ("one", "two")),  # both together free what they share
        (30, {"b": 5}, ("one", "two")),
        (20, {"b": 5}, None),  # what must stay
    ],
)
def test_what_versions_share_counts_once_and_is_free_when_all_of_them_go(
    limit: int, needed: dict[Hashable, int], gone: tuple[str, ...] | None
) -> None:
    held = [Held("one", {"a": 40}, 1.0), Held("two", {"a": 40, "c": 30}, 2.0), Held("kept", {"d": 20}, 0.0)]
    assert to_make_room(held, limit=limit, needed=needed, kept={"kept"}) == gone


@given(
    held=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8),
    kept=st.sets(st.integers(0, 7)),
    limit=st.integers(0, 200),
    needed=st.integers(0, 200),
)
def test_room_is_made_of_what_nobody_needs_or_not_at_all(
    held: list[tuple[int, int]], kept: set[int], limit: int, needed: int
) -> None:
    rows = [Held(str(at), {str(at): size}, float(used)) for at, (size, used) in enumerate(held)]
    sizes: dict[str, int] = {row.id: row.files[row.id] for row in rows}
    names = {str(at) for at in kept}
    gone = to_make_room(rows, limit=limit, needed={"x": needed}, kept=names)
    free = [row for row in rows if row.id not in names]
    if gone is None:
        assert sum(sizes[row.id] for row in rows if row.id in names) + needed > limit
        return
    assert not set(gone) & names
    left = sum(sizes[row.id] for row in rows if row.id not in gone)
    assert left + needed <= limit
    if gone:
        last = next(row for row in rows if row.id == gone[-1])
        assert left + sizes[last.id] + needed > limit
        assert all(row.used_at >= last.used_at for row in free if row.id not in gone and sizes[row.id])


FILES = st.dictionaries(st.sampled_from("abcdef"), st.just(0), max_size=4)


@given(held=st.lists(FILES, max_size=6), new=FILES, kept=st.sets(st.integers(0, 5)), limit=st.integers(0, 120))
def test_what_is_shared_is_never_counted_twice(
    held: list[dict[str, int]], new: dict[str, int], kept: set[int], limit: int
) -> None:
    sizes = {name: 10 + at for at, name in enumerate("abcdef")}
    rows = [Held(str(at), {name: sizes[name] for name in files}, float(at)) for at, files in enumerate(held)]
    needed: dict[Hashable, int]
    needed, names = {name: sizes[name] for name in new}, {str(at) for at in kept}
    gone = to_make_room(rows, limit=limit, needed=needed, kept=names)
    stays = [row for row in rows if row.id in names or (gone is not None and row.id not in gone)]
    taken = together([needed, *(row.files for row in stays)])
    assert taken == sum({**needed, **{name: size for row in stays for name, size in row.files.items()}}.values())
    assert (taken <= limit) == (gone is not None)
    for name in gone or ():  # none goes for nothing
        assert set(rows[int(name)].files) - {*needed, *(file for row in stays for file in row.files)}
