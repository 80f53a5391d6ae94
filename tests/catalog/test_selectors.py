"""Reads: what they hand out, with how many queries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog import selectors
from catalog.models import ApiKey, Model, Project
from catalog.services import keys, profiles, scopes, served
from llmgw_site.lib.errors import Kind, Refused
from tests.rows import ACTOR, a_key, a_model, a_project

pytestmark = pytest.mark.django_db


def test_only_keys_that_are_worth_something_are_handed_out_in_one_query(django_assert_num_queries: Any) -> None:
    project = a_project()
    live, text = a_key("live", project=project, models=["a", "b"])
    gone, _ = a_key("gone", project=project)
    keys.revoke(actor=ACTOR, key=gone)
    late, _ = a_key("late", project=project, expires_at=timezone.now() + timedelta(hours=1))
    now = timezone.now()
    with django_assert_num_queries(1):
        views = selectors.key_views(now=now)
    assert [view.key_id for view in views] == sorted([live.pk, late.pk])
    by_id = {view.key_id: view for view in views}
    assert by_id[live.pk].models == ("a", "b")
    assert by_id[late.pk].models is None
    assert late.expires_at is not None
    assert by_id[late.pk].expires_at == late.expires_at.timestamp()
    assert text not in repr(views)
    assert [view.key_id for view in selectors.key_views(now=now + timedelta(hours=2))] == [live.pk]


def test_models_come_with_their_enabled_profiles_best_first_and_adapters_in_three_queries(
    django_assert_num_queries: Any,
) -> None:
    project = a_project()
    for name in ("b", "a", "c"):
        model = a_model(name, project=project)
        profiles.add(actor=ACTOR, model=model, name="better", priority=9, memory=1 << 20)
        profiles.add(actor=ACTOR, model=model, name="off", priority=10, enabled=False, memory=1 << 20)
    served.disable(actor=ACTOR, model=Model.objects.get(name="b"))
    with django_assert_num_queries(3):
        views = selectors.model_views()
    assert [(view.name, view.enabled, view.owner) for view in views] == [
        ("a", True, "main"),
        ("b", False, "main"),
        ("c", True, "main"),
    ]
    assert [profile.name for profile in views[0].profiles] == ["better", "default"]


@pytest.mark.parametrize(
    ("rows", "queries"),
    [("organisations", 1), ("teams", 1), ("projects", 1), ("keys", 1), ("models_with_profiles", 2), ("profiles", 1), ("events", 1)],
)  # fmt: skip
def test_lists_take_the_same_queries_for_one_row_and_for_many(
    rows: str, queries: int, django_assert_num_queries: Any
) -> None:
    for number in range(3):
        project = a_project(f"p{number}")
        a_key(project=project)
        a_model(f"m{number}", project=project)
    with django_assert_num_queries(queries):
        for row in getattr(selectors, rows)():
            str(row)
            if isinstance(row, ApiKey):
                assert row.project.team.organisation.name
            if isinstance(row, Model):
                assert len(row.profiles.all()) == 1
            if isinstance(row, Project):
                assert row.key_count == 1  # type: ignore[attr-defined]


def test_a_row_is_found_by_id_or_name_and_an_id_wins() -> None:
    first, second = a_project("x"), a_project("y")
    second.name = first.pk
    second.save()
    assert selectors.find(selectors.projects(), first.pk, noun="project") == first
    assert selectors.find(selectors.projects(), "x", noun="project") == first
    for ref in ("z", "x\0", ""):
        with pytest.raises(Refused) as refused:
            selectors.find(selectors.projects(), ref, noun="project")
        assert refused.value.kind == Kind.NOT_FOUND


def test_a_scope_is_found_by_its_path_or_the_end_of_it_unless_a_name_is_just_that() -> None:
    one, other = a_project("web"), a_project("own")
    search = scopes.create_team(actor=ACTOR, organisation=one.team.organisation, name="search")
    web = scopes.create_project(actor=ACTOR, team=search, name="web")
    for ref in ("search/web", f"{search.organisation.name}/search/web", " search / web "):
        assert selectors.find(selectors.projects(), ref, noun="project") == web
    assert selectors.find(selectors.teams(), f"{search.organisation.name}/search", noun="team") == search
    for ref in ("x/search/web", "search/", "/web", "search//web", "a/b/c/search/web", "search/web\0"):
        with pytest.raises(Refused) as refused:
            selectors.find(selectors.projects(), ref, noun="project")
        assert refused.value.kind == Kind.NOT_FOUND, ref
    with pytest.raises(Refused) as refused:
        selectors.find(selectors.projects(), "web", noun="project")
    assert refused.value.message == "Several projects are named 'web': give the id, or write TEAM/web."
    type(other).objects.filter(pk=other.pk).update(name="search/web")
    assert selectors.find(selectors.projects(), "search/web", noun="project") == other


def test_a_name_that_several_carry_is_no_answer() -> None:
    a_key("same", project=a_project("x"))
    a_key("same", project=a_project("y"))
    with pytest.raises(Refused) as refused:
        selectors.find(selectors.keys(), "same", noun="key")
    assert refused.value.code == "ambiguous_name"


def test_the_project_may_be_left_out_only_where_there_is_one() -> None:
    with pytest.raises(Refused, match="none yet"):
        selectors.only_project()
    project = a_project()
    assert selectors.only_project() == project
    a_project("other")
    with pytest.raises(Refused, match="several"):
        selectors.only_project()
