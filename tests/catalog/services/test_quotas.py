"""Quotas of the tenancy tree as rows, and owners of models."""

from __future__ import annotations

import pytest

from catalog import selectors
from catalog.models import Event, Quota
from catalog.services import holders, quotas, scopes, served
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import a_model_row

pytestmark = pytest.mark.django_db


@pytest.fixture
def tree():
    organisation = scopes.create_organisation(actor="t", name="acme")
    team = scopes.create_team(actor="t", organisation=organisation, name="search")
    return organisation, team, scopes.create_project(actor="t", team=team, name="web")


def test_a_quota_is_set_changed_and_removed_with_an_event_each(tree) -> None:
    for guarantee in ({"cores": 4}, {"cards": {"L4": 2}}):
        row = quotas.put(actor="t", scope=tree[1], guarantee=guarantee, limit={"memory": 5})
        assert (row.guarantee, row.limit) == (guarantee, {"memory": 5})
    assert Quota.objects.count() == 1
    quotas.remove(actor="t", scope=tree[1])
    assert not Quota.objects.exists()
    kinds = list(Event.objects.filter(subject_kind="quota").order_by("at", "id").values_list("kind", flat=True))
    assert kinds == ["quota_added", "quota_changed", "quota_removed"]
    with pytest.raises(Refused, match="The team search has no quota"):
        quotas.remove(actor="t", scope=tree[1])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_kind_of_scope_has_its_own(tree, place) -> None:
    quotas.put(actor="t", scope=tree[place], guarantee={"cores": 0}, limit={})
    (view,) = [item for item in selectors.scope_views() if item.guarantee]
    assert (view.scope_id, view.guarantee) == (tree[place].pk, {"cores": 0})


@pytest.mark.parametrize(
    ("guarantee", "message"),
    [
        ({}, "guarantee: one is needed, or a limit"),
        ({"cards": {}}, "guarantee: one is needed, or a limit"),
        ({"cores": None}, "guarantee: one is needed, or a limit"),
        ({"gpus": 1}, "there is no 'gpus'; write cards"),
        ({"cores": -1}, "cores: a whole number from 0 on is needed"),
        ({"cores": True}, "cores: a whole number"),
        ({"cores": 1.5}, "cores: a whole number"),
        ({"memory": "5GiB"}, "memory: a whole number"),
        ({"memory": 1 << 60}, "memory: a whole number"),
        ({"cards": 4}, "cards: up to 100 numbers by class"),
        ({"cards": {"": 4}}, "cards: a class is up to 100 printable"),
        ({"cards": {"L4\n": 4}}, "cards: a class is up to 100 printable"),
        ({"cards": {"x" * 101: 4}}, "cards: a class is up to 100 printable"),
        ({"cards": {"L4": -1}}, "cards of L4: a whole number"),
        ({"cards": dict.fromkeys(map(str, range(101)), 1)}, "cards: up to 100 numbers"),
    ],
)
def test_an_amount_is_vetted(tree, guarantee, message) -> None:
    with pytest.raises(Refused, match=message) as refused:
        quotas.put(actor="t", scope=tree[0], guarantee=guarantee, limit={})
    assert (refused.value.code, refused.value.param) == ("invalid_value", "guarantee")


def test_a_quota_goes_with_its_scope(tree) -> None:
    quotas.put(actor="t", scope=tree[2], guarantee={"cores": 1}, limit={})
    scopes.delete(actor="t", scope=tree[2])
    assert not Quota.objects.exists()
    assert selectors.scope_views() == ()


def test_a_model_has_one_owner_and_a_new_one_takes_the_place_of_the_old(tree) -> None:
    organisation, team, project = tree
    model = a_model_row()
    for name, scope in (("project", project), ("team", team), ("organisation", organisation), ("project", project)):
        served.update(actor="t", model=model, **{name: scope})
        assert [model.project, model.team, model.organisation].count(None) == 2
        assert getattr(model, name) == scope
        (view,) = selectors.model_views()
        assert view.scope_id == scope.pk
    served.update(actor="t", model=model, project=None)
    (view,) = selectors.model_views()
    assert view.scope_id == ""
    with pytest.raises(Refused, match="a model has one owner"):
        served.update(actor="t", model=model, project=project, team=team)


def test_a_scope_that_owns_a_model_is_not_deleted(tree) -> None:
    served.update(actor="t", model=a_model_row(), team=tree[1])
    scopes.delete(actor="t", scope=tree[2])
    with pytest.raises(Refused, match="it still has models"):
        scopes.delete(actor="t", scope=tree[1])


def test_a_scope_is_found_by_id_by_name_and_by_kind_and_name(tree) -> None:
    organisation, team, project = tree
    other = scopes.create_team(actor="t", organisation=organisation, name="web")
    assert holders.scope("search") == team
    assert holders.scope(project.pk) == project
    assert holders.scope("team:web") == other
    assert holders.scope("project:web") == project
    with pytest.raises(Refused, match=f"team:web .{other.pk}. and project:web") as refused:
        holders.scope("web")
    assert refused.value.code == "ambiguous_name"
    for ref in ("nobody", "team:nobody", "", "kind:search", "\x00"):
        with pytest.raises(Refused) as refused:
            holders.scope(ref)
        assert refused.value.code == "not_found"
