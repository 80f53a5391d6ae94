"""Every route of the admin API x every role of a scope: what it answers, of one's own tree and of another's, and that no answer
names anything of the other one. A route without a decision here fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from django.db import transaction
from django.urls import URLResolver, get_resolver

from catalog.models import RoleGrant
from catalog.services import budgets, limits, quotas, roles
from llmgw_site.lib.errors import HTTP_STATUS, Kind
from routing import services as routing
from tests.api.calls import Caller
from tests.routing.test_services import a_record
from tests.rows import ACTOR, a_key, a_model, a_project, a_token, a_user

LEVELS = ("organisation", "team", "project", "key")
ROLES = ("viewer", "operator", "admin")
OFTEN = {("viewer", "project"), ("operator", "team"), ("admin", "organisation"), ("admin", "project")}
WHO = [
    pytest.param(role, scope, marks=[] if (role, scope) in OFTEN else [pytest.mark.prove])
    for scope in LEVELS[:3]
    for role in ROLES
]
OTHER = "ullozzq"
"""Part of every name in the tree that nobody here has a role of; ids have none of its letters u, l and o."""
FORBIDDEN, NOT_FOUND = HTTP_STATUS[Kind.FORBIDDEN], HTTP_STATUS[Kind.NOT_FOUND]


@dataclass(frozen=True)
class Case:
    """A request about something at `level` of the tree. `{t}` in path and body: the tree's name, and `{...}` ids of its rows.

    `least`: the role that may; `above`: only where that role is of a scope above the thing; `good`: the status then."""

    path: str
    level: str
    least: str = "viewer"
    above: bool = False
    body: Any = None
    good: int = 200

    def status(self, role: str, scope: str, *, own: bool) -> int:
        """1. it is about nothing in a tree  2. nobody with this role may do it  3. it is not in reach  4. it is said from above  5. else"""
        if not self.level:
            return self.good
        if ROLES.index(role) < ROLES.index(self.least):
            return FORBIDDEN
        if not own or LEVELS.index(scope) > LEVELS.index(self.level):
            return NOT_FOUND
        return FORBIDDEN if self.above and scope == self.level else self.good


@dataclass(frozen=True)
class Closed:
    """About the whole cluster: 403 for every role of a scope."""

    why: str


@dataclass(frozen=True)
class Open:
    """A list or a sum of what is in reach, for whoever may see such rows at all."""

    path: str


@dataclass(frozen=True)
class Elsewhere:
    """Not a person's: public, or of nodes, which sign. Tests of their own."""

    why: str


def each(path: str, **fields: Any) -> tuple[Case, ...]:
    return tuple(Case(path.replace("{at}", f"{{{level}}}"), level, **fields) for level in LEVELS)


MONEY = {"amount": "5"}
ROUTES: dict[str, Closed | Open | Elsewhere | tuple[Case, ...]] = {
    "GET organisations": Open("organisations"),
    "POST organisations": Closed("organisations are made by who has the cluster"),
    "GET organisations/<ref:ref>": (Case("organisations/{organisation}", "organisation"),),
    "PATCH organisations/<ref:ref>": Closed("what an organisation is called, and may use, is said from above"),
    "DELETE organisations/<ref:ref>": Closed("the same"),
    "GET teams": Open("teams"),
    "POST teams": (Case("teams", "organisation", "admin", body={"name": "n", "organisation": "{organisation}"}, good=201),),
    "GET teams/<ref:ref>": (Case("teams/{team}", "team"),),
    "PATCH teams/<ref:ref>": (
        Case("teams/{team}", "team", "admin", above=True, body={"allowed_models": ["a"]}),
        Case("teams/{team}", "team", "admin", above=True, body={"priority_class": "opportunistic"}),
        Case("teams/{team}", "team", "admin", above=True, body={"priority_class": "critical"}, good=403),
    ),
    "DELETE teams/<ref:ref>": (Case("teams/{team}", "team", "admin", above=True, good=409),),
    "GET projects": Open("projects"),
    "POST projects": (
        Case("projects", "team", "admin", body={"name": "n", "team": "{team}"}, good=201),
        Case("projects", "team", "admin", body={"name": "m", "team": "{team}", "priority_class": "critical"}, good=403),
    ),
    "GET projects/<ref:ref>": (Case("projects/{project}", "project"),),
    "PATCH projects/<ref:ref>": (
        Case("projects/{project}", "project", "admin", above=True, body={"allowed_models": ["a"]}),
        Case("projects/{project}", "project", "admin", above=True, body={"priority_class": "critical"}, good=403),
    ),
    "DELETE projects/<ref:ref>": (Case("projects/{project}", "project", "admin", above=True, good=409),),
    "GET roles": Open("roles"),
    "POST roles": tuple(
        Case("roles", level, "admin", body={"user": "carl", "role": "viewer", "scope": f"{{{level}}}"}, good=201)
        for level in LEVELS[:3]
    ),
    "GET roles/<ref:ref>": (Case("roles/{role}", "project"),),
    "DELETE roles/<ref:ref>": (Case("roles/{role}", "project", "admin", good=204),),
    "GET keys": Open("keys"),
    "POST keys": (
        Case("keys", "project", "operator", body={"name": "n", "project": "{project}"}, good=201),
        Case("keys", "project", "operator", body={"name": "n", "project": "{project}", "priority": -1}, good=201),
        Case("keys", "project", "operator", body={"name": "n", "project": "{project}", "priority": 1}, good=403),
    ),
    "GET keys/<ref:ref>": (Case("keys/{key}", "project"),),
    "POST keys/<ref:ref>/rotate": (Case("keys/{key}/rotate", "project", "operator", body={"grace": 1}),),
    "DELETE keys/<ref:ref>": (Case("keys/{key}", "project", "operator", good=204),),
    "GET limits": Open("limits"),
    "GET limits/<ref:ref>": each("limits/{at}"),
    "PUT limits/<ref:ref>": each("limits/{at}", least="admin", above=True, body={"parallel": 9}),
    "DELETE limits/<ref:ref>": each("limits/{at}", least="admin", above=True, good=204),
    "GET quotas": Open("quotas"),
    "GET quotas/<path:ref>": each("quotas/{at}")[:3],
    "PUT quotas/<path:ref>": each("quotas/{at}", least="admin", above=True, body={"limit": {"cores": 9}})[:3],
    "DELETE quotas/<path:ref>": each("quotas/{at}", least="admin", above=True, good=204)[:3],
    "GET budgets": Open("budgets"),
    "GET budgets/<path:ref>/<str:period>": each("budgets/{at}/month"),
    "PUT budgets/<path:ref>/<str:period>": each("budgets/{at}/month", least="admin", above=True, body=MONEY),
    "DELETE budgets/<path:ref>/<str:period>": each("budgets/{at}/month", least="admin", above=True, good=204),
    "GET tokens": Open("tokens"),
    "POST tokens": (Case("tokens", "", body={"name": "n"}, good=201),),
    "GET tokens/<ref:ref>": Elsewhere("one's own only: tests/api/test_roles.py"),
    "DELETE tokens/<ref:ref>": Elsewhere("the same"),
    "GET models": Open("models"),
    "POST models": Closed("what runs on the fleet"),
    "GET models/<ref:ref>": (Case("models/{model}", "project"),),
    "PATCH models/<ref:ref>": Closed("how it runs, and on what"),
    "DELETE models/<ref:ref>": Closed("what runs on the fleet"),
    "POST models/<ref:ref>/enable": (Case("models/{model}/enable", "project", "operator", body={}),),
    "POST models/<ref:ref>/disable": (Case("models/{model}/disable", "project", "operator", body={}),),
    "GET usage": Open("usage"),
    "GET usage/summary": Open("usage/summary?by=project"),
    "GET usage/report": Open("usage/report?by=day,project,key,model,team,organisation"),
    "GET requests/<str:ref>": (Case("requests/req-{t}", "project"), Case("requests/rec-{t}", "project")),
    **dict.fromkeys(
        ("GET schema", "GET docs", *(f"* agent/{name}" for name in (
            "join", "certificate", "heartbeat", "manifest", "demand", "limits", "heard", "snapshot", "usage"))),
        Elsewhere("public, or a node's: tests/arch/test_permissions.py"),
    ),
    **dict.fromkeys(
        (
            "GET nodes", "GET nodes/<str:ref>", "DELETE nodes/<str:ref>", "POST nodes/<str:ref>/cordon", "POST nodes/<str:ref>/drain",
            "POST nodes/<str:ref>/uncordon", "POST nodes/<str:ref>/label", "POST nodes/<str:ref>/fabric",
            "GET cluster/setup", "PUT cluster/setup", "GET join-tokens", "POST join-tokens", "GET join-tokens/<str:ref>",
            "DELETE join-tokens/<str:ref>", "GET replicas", "GET replicas/<str:ref>", "GET status",
        ),
        Closed("machines"),
    ),
    **dict.fromkeys(
        ("GET jobs", "POST jobs", "GET jobs/<str:ref>", "POST jobs/<str:ref>/cancel", "POST jobs/<str:ref>/retry", "GET events"),
        Closed("jobs and events are of the cluster, whatever they are about"),
    ),
    **dict.fromkeys(
        (
            "GET aliases", "POST aliases", "GET aliases/<ref:ref>", "PATCH aliases/<ref:ref>", "DELETE aliases/<ref:ref>",
            "GET registry/models", "GET registry/models/<path:ref>", "GET registry/models/<path:ref>/plan", "GET mirror", "POST mirror",
            "GET mirror/<str:ref>", "DELETE mirror/<str:ref>", "POST mirror/<str:ref>/origin", "GET updates", "GET providers", "POST providers",
            "PUT providers/<ref:ref>/key", "DELETE providers/<ref:ref>/key", "GET providers/<ref:ref>", "PATCH providers/<ref:ref>",
            "DELETE providers/<ref:ref>", "GET profiles", "GET profiles/<ref:ref>", "PATCH profiles/<ref:ref>", "DELETE profiles/<ref:ref>",
            "GET models/<ref:ref>/profiles", "POST models/<ref:ref>/profiles", "GET models/<ref:ref>/profiles/<str:profile>",
            "PATCH models/<ref:ref>/profiles/<str:profile>", "DELETE models/<ref:ref>/profiles/<str:profile>",
            "GET models/<ref:ref>/adapters", "POST models/<ref:ref>/adapters", "GET models/<ref:ref>/adapters/<ref:adapter>",
            "DELETE models/<ref:ref>/adapters/<ref:adapter>",
            *(f"POST models/<path:ref>/adapters/<path:adapter>/{verb}" for verb in ("check-origin", "origin", "update", "rollback")),
            *(f"POST models/<path:ref>/{verb}" for verb in (
                "check-origin", "origin", "update", "rollback", "bench", "restart", "retry", "scale", "target")),
            *(f"GET models/<path:ref>/{verb}" for verb in ("resources", "headroom", "why")),
        ),
        Closed("the catalogue's making"),
    ),
}  # fmt: skip


def routes(patterns: Any, prefix: str = "") -> Iterator[str]:
    for item in patterns:
        path = prefix + str(item.pattern)
        if isinstance(item, URLResolver):
            yield from routes(item.url_patterns, path)
        elif path.startswith("api/v1/"):
            view = item.callback
            verbs = getattr(view, "actions", None) or (
                {"get": ""} if hasattr(view, "cls") or path.endswith("docs") else {"*": ""}
            )
            yield from (f"{verb.upper()} {path.removeprefix('api/v1/')}" for verb in verbs if verb != "head")


def test_every_route_has_a_decision_and_every_decision_a_route() -> None:
    found = set(routes(get_resolver().url_patterns))
    assert found - ROUTES.keys() == set(), "decide what a role of a scope may do with these"
    assert ROUTES.keys() - found == set()


class Tree:
    """An organisation, a team, a project and a key, with all that can be set of them, a model, a role and a record of usage."""

    def __init__(self, name: str) -> None:
        project = a_project(name)
        key, _ = a_key(f"key of {name}", project=project)
        held = (project.team.organisation, project.team, project, key)
        for of in held:
            limits.put(actor=ACTOR, of=of, parallel=5)
            budgets.put(actor=ACTOR, of=of, period="month", amount=Decimal(10))
            if of is not key:
                quotas.put(actor=ACTOR, scope=of, guarantee={}, limit={"cores": 4})  # type: ignore[arg-type]
        model = a_model(f"model-{name}", project=project)
        grant = roles.give(actor=ACTOR, user=a_user(f"user of {name}"), role="viewer", scope=project)
        record = a_record(
            f"rec-{name}", request_id=f"req-{name}", key_id=key.pk, project_id=project.pk, model_asked=model.name, model_served=model.name,
        )  # fmt: skip
        routing.store_usage(node_id="n", records=[record])
        self.project = project
        self.held = dict(zip(LEVELS, held, strict=True))
        self.ids = {level: of.pk for level, of in self.held.items()} | {"model": model.pk, "role": grant.pk, "t": name}

    def fill(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self.fill(item) for name, item in value.items()}
        return re.sub(r"\{(\w+)\}", lambda m: self.ids[m[1]], value) if isinstance(value, str) else value


@pytest.fixture
def trees(db: None) -> tuple[Tree, Tree]:
    a_user("carl")
    return Tree("main"), Tree(OTHER)


def caller_of(role: str, scope: str, tree: Tree) -> Caller:
    user = a_user("ann")
    roles.give(actor=ACTOR, user=user, role=role, scope=tree.held[scope])  # type: ignore[arg-type]
    return Caller(a_token(user, "the caller's"))


@pytest.mark.parametrize(("role", "scope"), WHO)
def test_every_role_of_a_scope_is_answered_as_decided_and_told_nothing_of_another_tree(
    role: str, scope: str, trees: tuple[Tree, Tree]
) -> None:
    main, other = trees
    caller = caller_of(role, scope, main)
    wrong: dict[Any, Any] = {}

    def ask(verb: str, path: str, body: Any, expected: int) -> None:
        with transaction.atomic():
            answer = caller(verb, path, body)
            transaction.set_rollback(True)
        if answer.status != expected:
            wrong[verb, path] = (answer.status, expected, answer.body)
        elif answer.status < 400:
            named = str(answer.body)
            leaked = [found for found in (OTHER, *other.ids.values()) if found in named]
            if leaked:
                wrong[verb, path] = ("names", leaked, answer.body)

    for route, decision in ROUTES.items():
        verb = route.partition(" ")[0]
        if isinstance(decision, Open):
            ask(verb, decision.path, None, 200)
        elif isinstance(decision, Closed) and (role, scope) in (("admin", "organisation"), ("viewer", "project")):
            ask(verb, main.fill(_sample(route.partition(" ")[2])), {}, FORBIDDEN)
        elif isinstance(decision, tuple):
            for case in decision:
                for tree in trees:
                    status = case.status(role, scope, own=tree is main)
                    if "{" not in case.path + str(case.body):  # about nothing in the tree
                        status = case.good
                    ask(verb, tree.fill(case.path), tree.fill(case.body), status)
    assert wrong == {}


def _sample(path: str) -> str:
    """The closed routes are asked about what the caller sees, where there is such a thing."""
    path = path.replace("organisations/<ref:ref>", "organisations/{organisation}").replace("<ref:ref>", "{model}")
    return re.sub(r"<(?:\w+:)?\w+>", "none", path.replace("models/<path:ref>", "models/{model}"))


@pytest.mark.parametrize("scope", LEVELS[:3])
def test_lists_have_all_that_is_in_the_scope_and_nothing_above_it(scope: str, trees: tuple[Tree, Tree]) -> None:
    caller = caller_of("viewer", scope, trees[0])
    below = LEVELS[LEVELS.index(scope) :]
    for path in ("limits", "budgets"):
        assert [row["kind"] for row in caller("GET", path).body["results"]] == list(below), path
    assert [row["kind"] for row in caller("GET", "quotas").body["results"]] == list(below[:-1])
    for level in LEVELS:
        found = caller("GET", f"{level}s").body["results"]
        assert [row["id"] for row in found] == ([trees[0].ids[level]] if level in below else []), level


def test_an_admin_of_an_organisation_hands_on_what_it_is_guaranteed_and_no_more(trees: tuple[Tree, Tree]) -> None:
    main, _ = trees
    caller = caller_of("admin", "organisation", main)
    refused = caller("PUT", f"quotas/{main.ids['team']}", {"guarantee": {"memory": 1}})
    assert (refused.status, refused.code) == (409, "guarantee_not_given")
    assert "is guaranteed none that could be handed on" in refused.body["error"]["message"]
    quotas.put(actor=ACTOR, scope=main.held["organisation"], guarantee={"memory": 8}, limit={})  # type: ignore[arg-type]
    refused = caller("PUT", f"quotas/{main.ids['team']}", {"guarantee": {"memory": 9}})
    assert refused.code == "guarantees_over_parent"
    assert caller("PUT", f"quotas/{main.ids['team']}", {"guarantee": {"memory": 0}}).status == 200
    refused = caller("PUT", f"quotas/{main.ids['team']}", {"guarantee": {"memory": 0, "cores": 1}})
    assert refused.code == "guarantee_not_given"


def test_who_has_a_role_of_two_scopes_sees_both_and_governs_each_as_its_role_says(trees: tuple[Tree, Tree]) -> None:
    main, other = trees
    caller = caller_of("admin", "team", main)
    roles.give(actor=ACTOR, user=RoleGrant.objects.get(user__username="ann").user, role="viewer", scope=other.project)
    assert caller("PUT", f"limits/{main.ids['key']}", {"parallel": 1}).status == 200
    refused = caller("PUT", f"limits/{other.ids['key']}", {"parallel": 1})
    assert (refused.status, refused.code) == (403, "permission_denied")
    assert caller("GET", f"limits/{other.ids['key']}").status == 200
    assert len(caller("GET", "limits").body["results"]) == 3 + 2
