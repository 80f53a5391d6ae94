"""Which model an alias stands for in a request: who takes part, and who is picked."""

from __future__ import annotations

from typing import Any

import pytest

from routing.domain.aliases import able, entry_of, narrowed, open_to, pick
from routing.domain.choose import Route
from routing.domain.endpoints import CHAT, EMBEDDINGS, TOKENIZE
from routing.domain.snapshot import AliasEntry, KeyEntry, ModelEntry, ScopeEntry, TargetEntry
from routing.domain.tenancy import Holder, holders

ENTRIES: dict[str, dict[str, Any]] = {
    "a": {},
    "b": {},
    "c": {},
    "off": {"enabled": False},
    "vectors": {"embeddings": True},
}
ROUTES = {name: Route(model=ModelEntry(name=name, created=1, **fields)) for name, fields in ENTRIES.items()}


def alias(**weights: int) -> AliasEntry:
    return AliasEntry(
        name="chat",
        created=7,
        targets=tuple(TargetEntry(model=name, weight=weight) for name, weight in weights.items()),
    )


CHAT_ALIAS = alias(a=90, b=10)


def holder(key: tuple[str, ...] | None, *lists: tuple[str, ...] | None) -> Holder:
    """A key with this list, in a project, a team and an organisation with these."""
    ids, kinds = ("proj", "team", "org"), ("project", "team", "organisation")
    scopes = [
        ScopeEntry(scope_id=scope_id, kind=kind, name=kind, parent=parent, models=models)
        for scope_id, kind, parent, models in zip(ids, kinds, (*ids[1:], ""), lists, strict=False)
    ]
    entry = KeyEntry(key_id="k", sha256="sha", prefix="sk-", project_id="proj", models=key)
    return holders([entry], scopes, [CHAT_ALIAS])["sha"]


@pytest.mark.parametrize(
    ("key", "lists", "expected"),
    [
        (None, (), "a b"),
        (("a",), (), "a"),
        (("c",), (), ""),
        (("chat",), (), "a b"),
        (("chat", "a"), (), "a b"),
        (("chat",), (("a", "c"),), "a"),
        (("chat",), (("c",),), ""),
        (("chat",), (None, ("chat",), ("b",)), "b"),
        (None, (("chat",), ("a", "b")), "a b"),
        (None, (("chat",), None, ("a",)), "a"),
        (("a",), (("b",),), ""),
        (("a", "b"), (("b", "c"),), "b"),
        (("b",), (("chat",),), "b"),
    ],
)
def test_an_alias_leads_to_what_each_list_has_by_itself_or_by_the_alias(
    key: tuple[str, ...] | None, lists: tuple[tuple[str, ...] | None, ...], expected: str
) -> None:
    found = holder(key, *lists)
    assert " ".join(item.model for item in open_to(CHAT_ALIAS, found, ROUTES)) == expected


def test_a_list_with_an_alias_does_not_allow_its_targets_by_their_own_names() -> None:
    found = holder(("chat", "c"))
    assert found.models == frozenset({"chat", "c"})
    assert narrowed(found, "chat") == frozenset({"chat", "c", "a", "b"})
    assert narrowed(found, "other") == found.models
    assert narrowed(holder(None), "chat") is None


@pytest.mark.parametrize(
    ("targets", "endpoint", "expected"),
    [
        (alias(a=1, off=1), CHAT, "a"),
        (alias(off=1), CHAT, "off"),
        (alias(a=1, vectors=1), CHAT, "a"),
        (alias(a=1, vectors=1), EMBEDDINGS, "vectors"),
        (alias(a=1, vectors=1), TOKENIZE, "a vectors"),
        (alias(a=1), EMBEDDINGS, "a"),
    ],
)
def test_who_is_disabled_or_of_another_kind_takes_no_part_unless_nobody_else_is_left(
    targets: AliasEntry, endpoint: str, expected: str
) -> None:
    assert (
        " ".join(item.model for item in able(targets.targets, ROUTES, holder(None), endpoint=endpoint, now=0.0))
        == expected
    )


def test_a_target_that_is_gone_from_the_catalogue_takes_no_part() -> None:
    assert [item.model for item in open_to(alias(a=1, gone=9), holder(None), ROUTES)] == ["a"]


def test_the_list_of_models_shows_what_is_true_of_whichever_target_answers() -> None:
    entries = [
        ModelEntry(name=name, created=1, context=context) for name, context in (("a", 8000), ("b", 4000), ("c", None))
    ]
    shown = entry_of(CHAT_ALIAS, entries)
    assert (shown.name, shown.created, shown.context) == ("chat", 7, 4000)
    assert entry_of(CHAT_ALIAS, entries[2:]).context is None


def test_the_same_seed_has_the_same_target_in_whichever_order_they_stand() -> None:
    one, other = alias(a=3, b=2, c=1).targets, alias(c=1, b=2, a=3).targets
    assert all(pick("chat", one, str(seed)) == pick("chat", other, str(seed)) for seed in range(500))
    assert {pick("chat", one, "x") for _ in range(5)} == {pick("chat", one, "x")}
    assert any(pick("chat", one, str(seed)) != pick("else", one, str(seed)) for seed in range(100)), (
        "each alias by itself"
    )
