"""Manifests are vetted like anything from strangers; versions make room for others in a fair order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.manifests import Held, Manifest, ManifestFile, manifest_from_dict, to_make_room
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
        changed(files=[{"path": "a", "size": 1}, {"path": "a/b", "size": 1}], first=""), with_file(path="../x"),
        with_file(path="/etc/passwd"), with_file(path="a/../../x"), with_file(path=""), with_file(path="a//b"),
        with_file(path="a\\b"), with_file(path="a\x00b"), with_file(path=".hidden"), with_file(path="a/.git/config"),
        with_file(path="a/"), with_file(path="x" * 600), with_file(path=None), with_file(size=-1), with_file(size=1.5),
        with_file(size=True), with_file(size=None), with_file(size=1 << 61), with_file(sha256="zz"), with_file(blob="0" * 64),
        changed(files=[{"path": f"{at}", "size": 0} for at in range(2001)], first=""),
    ],
)  # fmt: skip
def test_a_bad_manifest_is_refused(data: Any) -> None:
    with pytest.raises(Refused) as refused:
        manifest_from_dict(data)
    assert refused.value.code == "manifest_bad"


OLD, NEW, USED = Held("old", 40, 1.0), Held("new", 30, 2.0), Held("used", 20, 0.0)


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
    assert to_make_room([NEW, OLD, USED], limit=limit, needed=needed, kept={"used"}) == gone


@given(
    held=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5)), max_size=8),
    kept=st.sets(st.integers(0, 7)),
    limit=st.integers(0, 200),
    needed=st.integers(0, 200),
)
def test_room_is_made_of_what_nobody_needs_or_not_at_all(
    held: list[tuple[int, int]], kept: set[int], limit: int, needed: int
) -> None:
    rows = [Held(str(at), size, float(used)) for at, (size, used) in enumerate(held)]
    names = {str(at) for at in kept}
    gone = to_make_room(rows, limit=limit, needed=needed, kept=names)
    free = [row for row in rows if row.id not in names]
    if gone is None:
        assert sum(row.size for row in rows if row.id in names) + needed > limit
        return
    assert not set(gone) & names
    left = sum(row.size for row in rows if row.id not in gone)
    assert left + needed <= limit
    if gone:
        last = next(row for row in rows if row.id == gone[-1])
        assert left + last.size + needed > limit
        assert all(row.used_at >= last.used_at for row in free if row.id not in gone)
