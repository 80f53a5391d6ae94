"""Where files on a node may have come from."""

from __future__ import annotations

import pytest

from catalog.domain.cards import RepoCard
from catalog.domain.repository import RepoFile
from catalog.domain.tracing import Clues, Match, Missing, checked, clues, held, names, next_to_trace, origin_of
from llmgw_site.lib.errors import Refused

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (f"/cache/models--Qwen--Qwen3-8B-GGUF/snapshots/{COMMIT}/Qwen3-8B-Q4_K_M.gguf",
         Clues(commit=COMMIT, repository="Qwen/Qwen3-8B-GGUF", words="Qwen3-8B")),
        (f"/srv/models/Qwen/Qwen3-8B-GGUF/{COMMIT[:12]}/Qwen3-8B-Q4_K_M-00001-of-00002.gguf",
         Clues(commit=COMMIT[:12], repository="Qwen/Qwen3-8B-GGUF", words="Qwen3-8B")),
        ("/srv/smollm2-135m-instruct/model.gguf", Clues(words="smollm2-135m-instruct")),
        ("/srv/SmolLM2-135M-Instruct.Q4_1.gguf", Clues(words="SmolLM2-135M-Instruct")),
        ("/m.gguf", Clues()),
    ],
)  # fmt: skip
def test_a_path_tells_commit_repository_and_words(path: str, found: Clues) -> None:
    assert clues(path) == found


def test_a_part_stands_for_its_set_and_a_folder_for_nothing() -> None:
    assert names("/a/m-00001-of-00002.gguf") == ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf")
    assert names("/a/m.gguf") == ("m.gguf",)
    assert names("/a/folder") == ()


def card(**files: int) -> RepoCard:
    paths = {name.replace("__", "/") + ".gguf": size for name, size in files.items()}
    return RepoCard(
        id="o/r", commit=COMMIT, files=tuple(RepoFile(path=path, size=size) for path, size in paths.items())
    )


def test_every_file_has_to_be_there_at_its_size_in_one_folder() -> None:
    assert held(card(a=5, b=6), {"a.gguf": 5, "b.gguf": 6}) == ("a.gguf", "b.gguf")
    assert held(card(q__a=5, q__b=6, a=5), {"a.gguf": 5, "b.gguf": 6}) == ("q/a.gguf", "q/b.gguf")
    assert held(card(q__a=5, p__b=6), {"a.gguf": 5, "b.gguf": 6}) is None
    assert held(card(a=5), {"a.gguf": 6}) is None
    assert held(card(a=5), {"a.gguf": None}) is None
    assert held(card(a=5), {}) is None


@pytest.mark.parametrize(
    ("files", "code", "words"),
    [
        ({"a.gguf": 6}, "origin_differs", "a.gguf has 5 bytes there and 6 here"),
        ({"c.gguf": 6}, "origin_differs", "has no file c.gguf"),
        ({"a.gguf": None}, "origin_unproven", "not known yet"),
    ],
)
def test_an_origin_that_is_none_is_refused_with_what_differs(
    files: dict[str, int | None], code: str, words: str
) -> None:
    with pytest.raises(Refused, match=words) as refused:
        checked(card(a=5), files)
    assert refused.value.code == code


def test_a_file_of_the_same_size_that_is_known_to_be_another_is_not_it() -> None:
    file = RepoFile(path="m.gguf", size=5, sha256="1" * 64)
    found = RepoCard(id="o/r", commit=COMMIT, files=(file,))
    assert held(found, {"m.gguf": 5}, {"m.gguf": "1" * 64}) == ("m.gguf",)
    assert held(found, {"m.gguf": 5}, {"m.gguf": "2" * 64}) is None
    with pytest.raises(Refused, match="another SHA-256") as refused:
        checked(found, {"m.gguf": 5}, {"m.gguf": "2" * 64})
    assert refused.value.code == "origin_differs"


def match(name: str, mark: str, *, named: bool = False) -> Match:
    file = RepoFile(path="m.gguf", size=5, sha256=mark * 64)
    return Match(card=RepoCard(id=name, commit=COMMIT, files=(file,)), paths=("m.gguf",), named=named)


def test_of_several_that_have_the_files_the_named_one_is_it_then_the_most_downloaded_then_none() -> None:
    assert origin_of([], "m") is None
    assert origin_of([match("a/m", "1"), match("b/m", "1")], "m") == match("a/m", "1")
    assert origin_of([match("a/m", "1"), match("b/m", "2", named=True)], "m") == match("b/m", "2", named=True)
    with pytest.raises(Refused, match=r"a/m, b/m.*llmgw model origin m") as refused:
        origin_of([match("a/m", "1"), match("b/m", "2")], "m")
    assert refused.value.code == "origin_ambiguous"


DAY = 24 * 3600.0


@pytest.mark.parametrize(
    ("models", "turn"),
    [
        ([], None),
        ([("a", 0.0, ""), ("b", 0.0, "")], "a"),
        ([("a", 9 * DAY, "origin_not_found"), ("b", 0.0, "")], "b"),
        ([("a", 9 * DAY, "origin_not_found"), ("b", 2 * DAY, "origin_ambiguous")], "b"),
        ([("a", 9 * DAY, "origin_not_found"), ("b", 4 * DAY, "origin_ambiguous")], None),
        ([("a", 9.9 * DAY, "origin_unproven")], "a"),
        ([("a", 9.99 * DAY, "origin_unproven")], None),
        ([("a", 9.99 * DAY, "registry_unreachable"), ("b", 0.0, "")], None),
        ([("a", 9.9 * DAY, "registry_unreachable"), ("b", 0.0, "")], "b"),
        ([("a", 9.9 * DAY, "")], "a"),  # whoever looked was killed
    ],
)
def test_whose_turn_it_is_to_be_traced(models: list[tuple[str, float, str]], turn: str | None) -> None:
    rows = [Missing(id=name, looked_at=at, code=code) for name, at, code in models]
    assert next_to_trace(rows, 10 * DAY) == turn
