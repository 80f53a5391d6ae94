"""Organisations, teams and projects."""

from __future__ import annotations

import pytest

from catalog.models import Event, Organisation, Project, Team
from catalog.services import keys, roles, scopes
from llmgw_site.lib.errors import Kind, Refused
from routing.selectors import compile_snapshot
from tests.rows import ACTOR, a_key, a_model, a_project, a_user

pytestmark = pytest.mark.django_db


def test_a_tree_is_made_and_each_step_is_recorded() -> None:
    project = a_project("web")
    assert (project.team.organisation.name, project.team.name) == ("org of web", "team of web")
    assert list(Event.objects.order_by("at", "id").values_list("kind", "actor")) == [
        ("organisation_added", ACTOR),
        ("team_added", ACTOR),
        ("project_added", ACTOR),
    ]
    assert Event.objects.get(kind="project_added").after == {
        "name": "web",
        "team": project.team.pk,
        "allowed_models": None,
        "priority_class": "",
    }


def test_a_name_is_taken_once_per_parent_and_free_elsewhere() -> None:
    project = a_project()
    with pytest.raises(Refused) as refused:
        scopes.create_project(actor=ACTOR, team=project.team, name="main")
    assert (refused.value.kind, refused.value.code, refused.value.param) == (Kind.CONFLICT, "name_taken", "name")
    other = scopes.create_team(actor=ACTOR, organisation=project.team.organisation, name="other")
    scopes.create_project(actor=ACTOR, team=other, name="main")


@pytest.mark.parametrize("name", ["", " ", " x", "x ", "a\nb", "a\x00b", "x" * 101, "a\n"])
def test_a_name_that_nobody_could_read_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        scopes.create_organisation(actor=ACTOR, name=name)
    assert (refused.value.kind, refused.value.param) == (Kind.INVALID, "name")
    assert not Organisation.objects.exists()
    assert not Event.objects.exists()


def test_renaming_records_before_and_after_and_the_same_name_records_nothing() -> None:
    project = a_project("old")
    scopes.change(actor=ACTOR, scope=project, name="new")
    scopes.change(actor=ACTOR, scope=project, name="new")
    assert project.name == "new"
    events = Event.objects.filter(kind="project_changed")
    assert [(event.before, event.after) for event in events] == [({"name": "old"}, {"name": "new"})]


def test_what_holds_something_is_not_deleted() -> None:
    project = a_project()
    for scope in (project.team.organisation, project.team):
        with pytest.raises(Refused, match="still has") as refused:
            scopes.delete(actor=ACTOR, scope=scope)
        assert refused.value.code == "still_in_use"
    assert (Organisation.objects.count(), Team.objects.count(), Project.objects.count()) == (1, 1, 1)


def test_a_project_with_a_live_key_or_a_model_stays_and_goes_with_revoked_keys() -> None:
    project = a_project()
    key, _ = a_key(project=project)
    with pytest.raises(Refused, match="1 key that nobody revoked"):
        scopes.delete(actor=ACTOR, scope=project)
    keys.revoke(actor=ACTOR, key=key)
    model = a_model(project=project)
    with pytest.raises(Refused, match="still has models"):
        scopes.delete(actor=ACTOR, scope=project)
    assert project.keys.count() == 1, "a refused deletion takes nothing with it"
    model.delete()
    scopes.delete(actor=ACTOR, scope=project)
    assert not Project.objects.exists()
    assert Event.objects.get(kind="project_removed").before == {
        "name": "main",
        "team": project.team_id,
        "allowed_models": None,
        "priority_class": "",
    }


def test_a_list_of_models_is_set_and_taken_away_and_a_bad_one_changes_nothing() -> None:
    project = a_project()
    scopes.change(actor=ACTOR, scope=project.team, allowed_models=["b", "a", "b"])
    assert project.team.allowed_models == ["b", "a"]
    for bad in ([], "a", ["a b"], [1]):
        with pytest.raises(Refused, match="allowed_models: a list of 1 to 1000") as refused:
            scopes.change(actor=ACTOR, scope=project.team, allowed_models=bad)
        assert refused.value.param == "allowed_models"
    with pytest.raises(Refused, match="no field 'id'"):
        scopes.change(actor=ACTOR, scope=project, id="proj_other")
    scopes.change(actor=ACTOR, scope=project.team, allowed_models=None)
    assert Team.objects.get().allowed_models is None
    told = Event.objects.filter(kind="team_changed").order_by("at", "id").values_list("after", flat=True)
    assert list(told) == [{"allowed_models": ["b", "a"]}, {"allowed_models": None}]


def test_the_nearest_scope_that_says_a_class_decides_and_each_change_is_recorded() -> None:
    project = a_project()
    organisation = project.team.organisation
    assert [row.effective_class for row in (organisation, project.team, project)] == ["standard"] * 3
    scopes.change(actor=ACTOR, scope=organisation, priority_class="critical")
    scopes.change(actor=ACTOR, scope=project, priority_class="opportunistic")
    project = Project.objects.get()
    assert (project.effective_class, project.team.effective_class) == ("opportunistic", "critical")
    scopes.change(actor=ACTOR, scope=project, priority_class="")
    assert Project.objects.get().effective_class == "critical"
    told = Event.objects.filter(kind="project_changed").order_by("at", "id").values_list("before", "after")
    assert list(told) == [
        ({"priority_class": ""}, {"priority_class": "opportunistic"}),
        ({"priority_class": "opportunistic"}, {"priority_class": ""}),
    ]
    with pytest.raises(Refused, match="priority_class") as refused:
        scopes.change(actor=ACTOR, scope=project, priority_class="urgent")
    assert (refused.value.kind, refused.value.param) == (Kind.INVALID, "priority_class")


@pytest.mark.parametrize(
    ("above", "present", "wanted", "may"),
    [
        ("", "", "opportunistic", True),
        ("", "", "standard", True),
        ("", "", "critical", False),
        ("", "opportunistic", "standard", True),
        ("", "critical", "critical", True),  # a form that says again what is so
        ("critical", "standard", "", True),  # what the scope above was given is for all that is in it
        ("critical", "", "critical", False),  # by itself it would outlast that
        ("opportunistic", "", "standard", False),
        ("opportunistic", "", "opportunistic", True),
        ("", "", "urgent", True),  # that there is no such class is said by who looks at the value
    ],
)
def test_a_role_of_a_scope_gives_no_class_above_the_usual_or_that_of_the_scope_above(
    above: str, present: str, wanted: str, may: bool
) -> None:
    project = a_project()
    team = project.team
    scopes.change(actor=ACTOR, scope=team, priority_class=above)
    scopes.change(actor=ACTOR, scope=project, priority_class=present)
    ann, root = a_user("ann"), a_user("root")
    roles.give(actor=ACTOR, user=ann, role="admin", scope=team)
    roles.give(actor=ACTOR, user=root, role="admin", scope=None)
    scopes.may_give_class(root, scope=project, priority_class=wanted)
    if may:
        scopes.may_give_class(ann, scope=project, priority_class=wanted)
        return
    with pytest.raises(Refused, match=r"ann may give (standard|opportunistic) and lower") as refused:
        scopes.may_give_class(ann, scope=project, priority_class=wanted)
    assert (refused.value.kind, refused.value.param) == (Kind.FORBIDDEN, "priority_class")


def test_nodes_are_told_of_a_class_and_of_what_lies_between_it_and_the_keys() -> None:
    project = a_project()
    a_key(project=project)
    assert compile_snapshot(now=1.0).scopes == ()
    scopes.change(actor=ACTOR, scope=project.team, priority_class="critical")
    told = {item.kind: item.priority_class for item in compile_snapshot(now=1.0).scopes}
    assert told == {"team": "critical", "project": ""}
