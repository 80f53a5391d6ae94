"""What follows for a key from the scopes above it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.types import Klass
from cluster.wire import from_dict, to_dict
from routing.domain.snapshot import KeyEntry, LimitEntry, ScopeEntry
from routing.domain.tenancy import allowlist, chain, classes, holders, told

ORG = ScopeEntry(scope_id="org", kind="organisation", name="o", models=("a", "b", "c"))
TEAM = ScopeEntry(scope_id="team", kind="team", name="t", parent="org")
PROJECT = ScopeEntry(scope_id="proj", kind="project", name="p", parent="team", models=("b", "c", "d"))
SCOPES = (PROJECT, ORG, TEAM)


def a_key(key_id: str = "k", project_id: str = "proj", models: tuple[str, ...] | None = None) -> KeyEntry:
    return KeyEntry(key_id=key_id, sha256=f"sha of {key_id}", prefix="sk-", project_id=project_id, models=models)


def test_lists_are_intersected_downwards_and_a_scope_without_one_forbids_nothing() -> None:
    keys = [a_key("all"), a_key("some", models=("a", "b")), a_key("none", models=("x",)), a_key("else", "other")]
    found = holders(keys, SCOPES)
    assert found["sha of all"].models == frozenset({"b", "c"})
    assert found["sha of some"].models == frozenset({"b"})
    assert found["sha of none"].models == frozenset()
    assert found["sha of else"].models is None
    assert [scope.scope_id for scope in found["sha of all"].scopes] == ["proj", "team", "org"]
    assert found["sha of else"].scopes == ()


def test_keys_of_one_project_with_the_same_list_share_what_it_comes_to() -> None:
    keys = [a_key(str(number), models=("b", "c")) for number in range(3)]
    assert len({id(holder.models) for holder in holders(keys, SCOPES).values()}) == 1


@given(st.lists(st.none() | st.frozensets(st.sampled_from("abcde"))))
def test_a_name_is_allowed_where_every_list_has_it(lists: list[frozenset[str] | None]) -> None:
    allowed = allowlist(lists)
    for name in "abcdef":
        assert (allowed is None or name in allowed) == all(names is None or name in names for names in lists)


def test_a_circle_of_scopes_ends() -> None:
    """No controller writes one; a gateway that met one would stand still."""
    one = ScopeEntry(scope_id="1", kind="team", name="1", parent="2")
    two = ScopeEntry(scope_id="2", kind="team", name="2", parent="1")
    assert len(chain({"1": one, "2": two}, "1")) == 3


def test_nodes_are_told_what_something_follows_from_and_what_lies_between() -> None:
    idle = ScopeEntry(scope_id="idle", kind="project", name="i", parent="team")
    alone = ScopeEntry(scope_id="alone", kind="project", name="a", parent="team 2")
    bare = ScopeEntry(scope_id="team 2", kind="team", name="t2", parent="org 2")
    far = ScopeEntry(scope_id="org 2", kind="organisation", name="o2")
    every = (*SCOPES, idle, alone, bare, far)
    assert [scope.scope_id for scope in told(every, {"proj", "alone"})] == ["org", "proj", "team"]
    assert [scope.scope_id for scope in told(every, {"idle"})] == ["idle", "org", "team"]
    assert told(every, {"alone", "unknown"}) == ()


def test_what_bounds_a_key_is_its_own_limit_and_those_of_the_scopes_above() -> None:
    limit = LimitEntry(parallel=3)
    scopes = (replace(PROJECT, limit=limit), TEAM, replace(ORG, limit=LimitEntry(requests_per_minute=60)))
    own = replace(a_key("own"), limit=LimitEntry(tokens_per_minute=7), name="ci")
    found = holders([own, a_key("plain"), a_key("free", "other")], scopes)
    bounds = found["sha of own"].bounds
    assert bounds is not None
    assert [(item.scope_id, item.kind, item.name) for item in bounds] == [
        ("own", "key", "ci"),
        ("proj", "project", "p"),
        ("org", "organisation", "o"),
    ]
    assert found["sha of plain"].bounds == bounds[1:]
    assert found["sha of free"].bounds is None


def test_a_scope_with_nothing_but_a_limit_is_told_of() -> None:
    bare = ScopeEntry(scope_id="bare", kind="project", name="b", limit=LimitEntry(parallel=1))
    assert told([bare], {"bare"}) == (bare,)


@pytest.mark.parametrize(
    ("organisation", "team", "project", "follows"),
    [
        ("", "", "", None),
        ("critical", "", "", Klass.CRITICAL),
        ("critical", "opportunistic", "", Klass.OPPORTUNISTIC),
        ("opportunistic", "", "critical", Klass.CRITICAL),
        ("critical", "", "standard", Klass.STANDARD),
        ("", "critical", "of a later version", Klass.STANDARD),
    ],
)
def test_the_nearest_scope_that_says_a_class_decides(
    organisation: str, team: str, project: str, follows: Klass | None
) -> None:
    scopes = (
        replace(PROJECT, priority_class=project),
        replace(TEAM, priority_class=team),
        replace(ORG, priority_class=organisation),
    )
    assert classes(scopes).get("proj") is follows
    assert not classes(scopes).keys() - {"proj"}


def test_a_scope_with_nothing_but_a_class_is_told_of_and_one_of_before_classes_says_none() -> None:
    team = ScopeEntry(scope_id="team 2", kind="team", name="t", parent="", priority_class="critical")
    project = ScopeEntry(scope_id="idle", kind="project", name="i", parent="team 2")
    assert told((team, project), {"idle"}) == (project, team)
    before = {name: value for name, value in to_dict(team).items() if name != "priority_class"}
    assert from_dict(ScopeEntry, before).priority_class == ""
