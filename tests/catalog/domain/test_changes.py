"""Whether a version's files changed at their origin, and which files follow them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.domain.cards import RepoCard
from catalog.domain.changes import carried, change, successor
from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format, RepoFile, file_sets
from llmgw_site.lib.errors import Refused

OLD, NEW = "a" * 40, "b" * 40
SHA, OTHER = "1" * 64, "2" * 64
BLOB, OTHER_BLOB = "3" * 40, "4" * 40


def manifest(*files: ManifestFile, commit: str = OLD) -> Manifest:
    return Manifest(
        id="ver_0123456789", format=Format.GGUF, files=files, first=files[0].path, repository="o/r", commit=commit
    )


def card(*files: RepoFile, commit: str = NEW) -> RepoCard:
    return RepoCard(id="o/r", commit=commit, files=files)


WEIGHTS = ManifestFile(path="m-Q8_0.gguf", size=10, sha256=SHA)


@pytest.mark.parametrize(
    ("serves", "newest", "left", "told"),
    [
        (NEW, NEW, OLD, ()),  # an update
        (NEW, NEW[:12], OLD, ()),
        (OLD, NEW, NEW, ("m-Q8_0.gguf",)),  # and its way back
        (OLD, "c" * 40, NEW, None),  # it has moved on since
        (OLD, "", NEW, None),  # it was never asked
    ],
)
def test_what_a_look_still_tells_when_something_else_is_served(
    serves: str, newest: str, left: str, told: tuple[str, ...] | None
) -> None:
    files = {OLD: WEIGHTS, NEW: ManifestFile(path="m-Q8_0.gguf", size=11, sha256=OTHER)}
    now, before = manifest(files[serves], commit=serves), manifest(files[left], commit=left)
    assert carried(now, newest, before) == told
    assert carried(replace(now, repository="o/other"), newest, before) is None


def test_the_same_commit_is_no_change_even_shortened() -> None:
    assert not change(manifest(WEIGHTS, commit=OLD[:12]), card(commit=OLD))


def test_a_new_commit_with_the_same_files_is_no_change() -> None:
    found = change(
        manifest(WEIGHTS), card(RepoFile(path="m-Q8_0.gguf", size=10, sha256=SHA), RepoFile(path="README.md", size=5))
    )
    assert (bool(found), found.commit) == (False, NEW)


@pytest.mark.parametrize(
    "now",
    [
        RepoFile(path="m-Q8_0.gguf", size=10, sha256=OTHER),
        RepoFile(path="m-Q8_0.gguf", size=11, sha256=SHA),
        RepoFile(path="moved/m-Q8_0.gguf", size=10, sha256=SHA),
    ],
)
def test_other_bytes_another_size_or_no_file_is_a_change(now: RepoFile) -> None:
    assert change(manifest(WEIGHTS), card(now)).files == ("m-Q8_0.gguf",)


def test_small_files_are_compared_by_their_blob_and_files_of_others_do_not_count() -> None:
    small = ManifestFile(path="config.json", size=5, blob=BLOB)
    same = RepoFile(path="m-Q8_0.gguf", size=10, sha256=SHA)
    assert not change(manifest(WEIGHTS, small), card(same, RepoFile(path="config.json", size=5, blob=BLOB)))
    found = change(manifest(WEIGHTS, small), card(same, RepoFile(path="config.json", size=5, blob=OTHER_BLOB)))
    assert found.files == ("config.json",)


def sets(*paths: str):  # type: ignore[no-untyped-def]
    return file_sets([RepoFile(path=path, size=10, sha256=SHA) for path in paths])


def test_the_same_file_follows_and_else_the_same_quantisation() -> None:
    there = sets("m-Q8_0.gguf", "m-F16.gguf", "other-Q8_0.gguf")
    found = successor(there, format=Format.GGUF, first="m-Q8_0.gguf", quantization="Q8_0")
    assert found.first.path == "m-Q8_0.gguf"
    found = successor(sets("n-Q8_0.gguf", "n-F16.gguf"), format=Format.GGUF, first="m-Q8_0.gguf", quantization="Q8_0")
    assert found.first.path == "n-Q8_0.gguf"


@pytest.mark.parametrize(
    ("paths", "code", "words"),
    [
        (("m-F16.gguf",), "update_gone", "m-F16.gguf"),
        (("n-Q8_0.gguf", "o-Q8_0.gguf"), "update_gone", "another name"),
        ((), "update_gone", "no model of that format"),
        (("m-Q8_0-00001-of-00002.gguf",), "weights_incomplete", "00002-of-00002"),
    ],
)
def test_what_cannot_follow_is_refused(paths: tuple[str, ...], code: str, words: str) -> None:
    with pytest.raises(Refused, match=words) as refused:
        successor(sets(*paths), format=Format.GGUF, first="m-Q8_0.gguf", quantization="Q8_0")
    assert refused.value.code == code
