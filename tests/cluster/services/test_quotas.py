"""cluster.services.quotas: guarantees that several people set at once never add up to more than there is."""

from __future__ import annotations

import random

import pytest

from catalog.models import Project, Quota, Team
from catalog.services import scopes
from cluster import selectors
from cluster.domain.amounts import of_fleet
from cluster.domain.guarantees import check
from cluster.services import quotas
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import ACTOR, Machine
from tests.cluster.threads import at_once

pytestmark = pytest.mark.django_db(transaction=True)
CODES = {"guarantees_over_fleet", "guarantees_over_parent", "guarantee_over_limit", "not_found"}


@pytest.fixture
def tree() -> list[scopes.Scope]:
    """Two organisations, each with two teams, one of these with a project; a fleet of eight cores."""
    for _ in range(2):
        Machine().heartbeat()
    rows: list[scopes.Scope] = []
    for name in ("acme", "umbrella"):
        organisation = scopes.create_organisation(actor=ACTOR, name=name)
        teams = [scopes.create_team(actor=ACTOR, organisation=organisation, name=f"{name} {n}") for n in "ab"]
        rows += [organisation, *teams, scopes.create_project(actor=ACTOR, team=teams[0], name=f"{name} p")]
    return rows


def problems() -> tuple[object, ...]:
    return check(selectors.scopes(), of_fleet(selectors.world().nodes))


def test_of_two_who_want_the_last_cores_one_is_refused_with_the_sums(tree: list[scopes.Scope]) -> None:
    acme, umbrella = (row for row in tree if not isinstance(row, (Team, Project)))
    for _ in range(8):
        Quota.objects.all().delete()
        errors = at_once(
            *(
                lambda scope=scope: quotas.put(actor=ACTOR, scope=scope, guarantee={"cores": 5}, limit={})
                for scope in (acme, umbrella)
            )
        )
        assert [getattr(error, "code", error) for error in errors] == ["guarantees_over_fleet"]
        assert "add up to 10 cores" in str(errors[0])
        assert [row.guarantee for row in Quota.objects.all()] == [{"cores": 5}]


@pytest.mark.parametrize("seed", [0, 4])  # in whatever order they come, each refusal comes five times and more
def test_however_many_set_and_remove_quotas_at_once_the_sums_hold(tree: list[scopes.Scope], seed: int) -> None:
    done: list[str] = []

    def person(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        for _ in range(20):
            scope = dice.choice(tree)
            try:
                if dice.random() < 0.2:
                    quotas.remove(actor=ACTOR, scope=scope)
                else:
                    limit = {"cores": dice.randrange(9)} if dice.random() < 0.3 else {}
                    quotas.put(actor=ACTOR, scope=scope, guarantee={"cores": dice.randrange(6)}, limit=limit)
                done.append("set")
            except Refused as refused:
                done.append(refused.code)

    assert at_once(*(lambda number=number: person(number) for number in range(3))) == []
    assert problems() == ()
    assert {"set", "guarantees_over_fleet", "guarantees_over_parent"} <= set(done) <= {"set", *CODES}


def test_a_quota_of_a_scope_that_is_deleted_at_that_moment_is_set_or_refused(tree: list[scopes.Scope]) -> None:
    for number in range(6):
        scope = scopes.create_organisation(actor=ACTOR, name=f"gone {number}")
        errors = at_once(
            lambda scope=scope: quotas.put(actor=ACTOR, scope=scope, guarantee={"cores": 1}, limit={}),
            lambda scope=scope: scopes.delete(actor=ACTOR, scope=scope),
        )
        assert all(getattr(error, "code", error) in {"not_found", "still_in_use"} for error in errors), errors
    assert problems() == ()
    assert Quota.objects.count() == 0
