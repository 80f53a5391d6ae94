"""Limits as rows: set, changed, removed, found, and told to the snapshot."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, transaction

from catalog.models import Event, Limit
from catalog.services import holders, keys, limits, scopes
from llmgw_site.lib.errors import Refused
from routing import selectors
from routing.domain.snapshot import LimitEntry

pytestmark = pytest.mark.django_db


@pytest.fixture
def tree() -> tuple[Any, ...]:
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    project = scopes.create_project(actor="t", team=team, name="web")
    return organisation, team, project, keys.issue(actor="t", project=project, name="ci")[0]


def test_a_limit_is_set_changed_and_removed_with_an_event_each(tree: Any) -> None:
    limits.put(actor="t", of=tree[1], requests_per_minute=60, parallel=4)
    row = limits.put(actor="t", of=tree[1], tokens_per_minute=0, why="as agreed")
    assert (row.requests_per_minute, row.tokens_per_minute, row.parallel) == (None, 0, None)
    assert Limit.objects.count() == 1
    limits.remove(actor="t", of=tree[1])
    assert not Limit.objects.exists()
    kinds = list(Event.objects.filter(subject_kind="limit").order_by("at", "id").values_list("kind", flat=True))
    assert kinds == ["limit_added", "limit_changed", "limit_removed"]
    with pytest.raises(Refused, match="The team search has no limit"):
        limits.remove(actor="t", of=tree[1])
    with pytest.raises(Refused, match="The team search has no limit"):
        limits.show(tree[1])


@pytest.mark.parametrize("figures", [{}, {"parallel": -1}, {"tokens_per_minute": 1 << 53}])
def test_what_is_no_limit_is_refused(tree: Any, figures: dict[str, Any]) -> None:
    with pytest.raises(Refused) as told:
        limits.put(actor="t", of=tree[0], **figures)
    assert told.value.code == "invalid_value"
    assert not Limit.objects.exists()


def test_a_row_is_of_one_thing(tree: Any) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        Limit.objects.create(organisation=tree[0], team=tree[1], parallel=1)
    with pytest.raises(IntegrityError), transaction.atomic():
        Limit.objects.create(parallel=1)


def test_everything_that_can_have_a_limit_is_found_by_id_by_name_and_by_kind(tree: Any) -> None:
    for of, name in zip(tree, ("acme", "team:search", "web", "key:ci"), strict=True):
        assert holders.find(of.pk) == of
        assert holders.find(name) == of
    assert holders.find("ci") == tree[3]
    for absent in ("nobody", "key:nobody", "team:ci", "a\x00b"):
        with pytest.raises(Refused) as told:
            holders.find(absent)
        assert told.value.code == "not_found"
    keys.revoke(actor="t", key=tree[3])
    with pytest.raises(Refused, match="no organisation, team, project or key 'ci'"):
        holders.find("ci")


def test_rows_are_shown_in_the_order_of_the_tree(tree: Any, django_assert_num_queries: Any) -> None:
    for of in reversed(tree):
        limits.put(actor="t", of=of, parallel=1)
    with django_assert_num_queries(1):
        found = limits.shown()
    assert [(row.kind, " / ".join(row.path)) for row in found] == [
        ("organisation", "acme"),
        ("team", "acme / search"),
        ("project", "acme / search / web"),
        ("key", "acme / search / web / ci"),
    ]
    assert [path for _, path in holders.paths()] == [" / ".join(row.path) for row in found]
    keys.revoke(actor="t", key=tree[3])
    assert len(limits.shown()) == 3


def test_the_snapshot_tells_limits_of_keys_and_scopes_and_of_no_others(tree: Any) -> None:
    other = scopes.create_team(actor="t", organisation=tree[0], name="idle")
    limits.put(actor="t", of=other, parallel=9)
    limits.put(actor="t", of=tree[1], requests_per_minute=60, tokens_per_minute=5000)
    limits.put(actor="t", of=tree[3], parallel=2)
    plain = keys.issue(actor="t", project=tree[2], name="plain")[0]
    told = selectors.compile_snapshot(now=1.0)
    by_key = {entry.key_id: entry for entry in told.keys}
    assert (by_key[tree[3].pk].limit, by_key[tree[3].pk].name) == (LimitEntry(parallel=2), "ci")
    assert (by_key[plain.pk].limit, by_key[plain.pk].name) == (None, "")
    assert {scope.scope_id: scope.limit for scope in told.scopes} == {
        tree[1].pk: LimitEntry(requests_per_minute=60, tokens_per_minute=5000),
        tree[2].pk: None,
    }
