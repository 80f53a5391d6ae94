"""Every page of the console x roles of a scope: what opens, of one's own tree and of another's, and that no page names anything of the
other one. A page without a decision here fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLResolver, get_resolver

from catalog.models import ApiKey, Model
from catalog.services import roles
from tests.api.test_scopes import LEVELS, OTHER, ROLES, Tree
from tests.rows import ACTOR, a_user

pytestmark = pytest.mark.django_db
WHO = [
    ("admin", "organisation"),
    pytest.param(("operator", "team"), marks=pytest.mark.prove),
    pytest.param(("viewer", "project"), marks=pytest.mark.prove),
]
CLOSED, HIDDEN, MISSING = 403, 302, 404
"""Not for who has roles of scopes only; a row that is as if it were not there leads back to its list; a page that is not there."""
ANY = "for every member of staff: tests/arch/test_permissions.py"
OWN = "one's own: tests/llmgw_site/console/test_users.py"

PAGES: dict[str, str] = {
    **dict.fromkeys(
        ("", "admin", "admin/", "admin/overview/parts", "admin/oidc/start", "admin/oidc/callback", "admin/oidc/backchannel-logout",
         "admin/logout/", "admin/login/",
         "admin/password_change/", "admin/password_change/done/", "admin/jsi18n/", "admin/search/", "admin/(?P<url>.*)$",
         "admin/^(?P<app_label>catalog|cluster|routing|auth)/$", "admin/r/<path:content_type_id>/<path:object_id>/",
         "admin/autocomplete/"),
        ANY,
    ),
    **dict.fromkeys(
        ("admin/jobs", "admin/jobs/<str:job_id>", "admin/jobs/<str:job_id>/cancel", "admin/jobs/<str:job_id>/retry", "admin/nodes",
         "admin/nodes/add", "admin/nodes/tokens/<str:token_id>/revoke", "admin/nodes/<str:node_id>/maintenance",
         "admin/nodes/<str:node_id>/remove", "admin/registry", "admin/registry/<path:ref>", "admin/mirror", "admin/mirror/add",
         "admin/mirror/<str:version_id>/origin", "admin/mirror/<str:version_id>/remove", "admin/setup", "admin/setup/save", "admin/setup/clear", "admin/chat",
         "admin/aliases", "admin/aliases/<str:alias_id>/remove", "admin/chat/models", "admin/chat/key", "admin/model/<str:model_id>", "admin/model/<str:model_id>/adapter",
         "admin/model/<str:model_id>/adapter/<str:adapter_id>/remove",
         "admin/model/<str:model_id>/adapter/<str:adapter_id>/<str:verb>", "admin/model/<str:model_id>/weights/<str:verb>",
         *(f"admin/model/<str:model_id>/{verb}" for verb in ("queue", "owner", "scale", "class", "target", "restart", "retry"))),
        "closed",
    ),
    **dict.fromkeys(("admin/limits", "admin/quotas", "admin/budgets", "admin/usage"), "list"),
    **dict.fromkeys((f"admin/{name}s/{verb}" for name in ("limit", "quota", "budget") for verb in ("set", "remove")), "set"),
    "admin/keys/<str:key_id>/rotate": "rotate",
    "admin/requests/<str:ref>": "request",
}  # fmt: skip
TABLES: dict[str, tuple[str, ...]] = {
    # table: level of its rows; least role that adds, changes and deletes; "" where nobody with a role of a scope does
    "catalog/organisation": ("organisation", "", "", ""),
    "catalog/team": ("team", "admin", "admin", "admin"),
    "catalog/project": ("project", "admin", "admin", "admin"),
    "catalog/apikey": ("project", "operator", "", ""),
    "catalog/rolegrant": ("project", "admin", "", "admin"),
    "catalog/model": ("project", "", "", ""),
    "routing/usagerecord": ("project", "", "", ""),
    **dict.fromkeys(
        ("catalog/alias", "catalog/event", "catalog/provider", "catalog/version", "cluster/job", "cluster/jointoken", "cluster/clustersetup", "cluster/node",
         "cluster/replica", "auth/user", "auth/group"),
        (),
    ),
}  # fmt: skip
FORMS = (
    "",
    "add/",
    "<path:object_id>/history/",
    "<path:object_id>/delete/",
    "<path:object_id>/change/",
    "<path:object_id>/",
)
ACTIONS = {"admin/catalog/apikey/<path:object_id>/rotate/": "operator", "admin/catalog/model/<path:object_id>/card/": "",
           "admin/auth/user/<id>/password/": ""}  # fmt: skip


def pages(patterns: Any, prefix: str = "") -> Iterator[str]:
    for item in patterns:
        path = prefix + str(item.pattern)
        if isinstance(item, URLResolver):
            yield from pages(item.url_patterns, path)
        elif not path.startswith(("api/", "internal/", "metrics")):
            yield path


def test_every_page_has_a_decision_and_every_decision_a_page() -> None:
    found = set(pages(get_resolver().url_patterns))
    tokens = {f"admin/catalog/admintoken/{form}" for form in FORMS}  # one's own only: tests/admin/test_catalogue.py
    known = {f"admin/{table}/{form}" for table in TABLES for form in FORMS} | PAGES.keys() | ACTIONS.keys() | tokens
    assert found - known == set(), "decide what a role of a scope may do with these"
    assert known - found == set()


class Visitor:
    """Somebody with a role of the tree `main`; what a page shows of the tree `other` is kept in `wrong`."""

    def __init__(self, role: str, scope: str) -> None:
        self.main, self.other = Tree("main"), Tree(OTHER)
        self.role, self.scope = role, scope
        user = a_user("ann", staff=False)
        roles.give(actor=ACTOR, user=user, role=role, scope=self.main.held[scope])  # type: ignore[arg-type]
        self.client = Client()
        self.client.force_login(user)
        self.wrong: list[Any] = []

    def may(self, least: str) -> bool:
        return bool(least) and ROLES.index(self.role) >= ROLES.index(least)

    def asks(self, path: str, expected: int, *, verb: str = "get", data: Any = None) -> HttpResponse:
        with transaction.atomic():
            answer: HttpResponse = getattr(self.client, verb)(f"/{path}", data or {})
            transaction.set_rollback(True)
        self.client.cookies.pop("messages", None)  # they repeat what was asked for
        named = answer.content.decode()
        leaked = [item for item in (OTHER, *self.other.ids.values()) if item in named]
        if answer.status_code != expected or leaked:
            self.wrong.append((verb, path, answer.status_code, expected, leaked))
        return answer


@pytest.fixture(params=WHO, ids=lambda item: " of ".join(item))
def visitor(request: pytest.FixtureRequest) -> Visitor:
    return Visitor(*request.param)


def test_pages_of_the_console_open_as_decided(visitor: Visitor) -> None:
    for page, decision in PAGES.items():
        path = re.sub(r"<str:model_id>", visitor.main.ids["model"], page)
        path = re.sub(r"<(?:\w+:)?\w+>", "none", path)
        if decision == "closed":
            visitor.asks(path, CLOSED)
            visitor.asks(path, CLOSED, verb="post")
        elif decision == "list":
            visitor.asks(path, 200)
    for noun in ("limit", "quota", "budget"):
        for level in LEVELS[: 3 if noun == "quota" else 4]:
            for tree in (visitor.main, visitor.other):
                path = f"admin/{noun}s/set?of={tree.ids[level]}&period=month"
                seen = tree is visitor.main and LEVELS.index(level) >= LEVELS.index(visitor.scope)
                good = HIDDEN if not seen else CLOSED if level == visitor.scope else 200
                visitor.asks(path, good if visitor.may("admin") else CLOSED)
                gone = HIDDEN if visitor.may("admin") and good != CLOSED else CLOSED
                visitor.asks(path.replace("/set", "/remove"), gone, verb="post")
    for tree, found in ((visitor.main, True), (visitor.other, False)):
        rotates = visitor.may("operator")
        visitor.asks(f"admin/keys/{tree.ids['key']}/rotate", CLOSED if not rotates else 200 if found else HIDDEN)
        visitor.asks(f"admin/requests/req-{tree.ids['t']}", 200 if found else MISSING)
    assert visitor.wrong == []


def test_pages_of_tables_open_as_decided(visitor: Visitor) -> None:
    for table, decided in TABLES.items():
        if not decided:
            for form in FORMS:
                visitor.asks(f"admin/{table}/{form}".replace("<path:object_id>", "none"), _closed(form))
            continue
        level, adds, changes, deletes = decided
        visitor.asks(f"admin/{table}/", 200)
        visitor.asks(f"admin/{table}/add/", 200 if visitor.may(adds) else CLOSED)
        for tree in (visitor.main, visitor.other):
            row = {"catalog/model": "model", "catalog/apikey": "key", "catalog/rolegrant": "role"}.get(table, level)
            pk = f"rec-{tree.ids['t']}" if table == "routing/usagerecord" else tree.ids[row]
            seen = tree is visitor.main and LEVELS.index(level) >= LEVELS.index(visitor.scope)
            at = f"admin/{table}/{pk}"
            above = level != visitor.scope or table == "catalog/rolegrant"
            visitor.asks(f"{at}/change/", 200 if seen else HIDDEN)
            visitor.asks(f"{at}/history/", 200 if seen else HIDDEN)
            for path, least, verb in (("change", changes, "post"), ("delete", deletes, "get")):
                good = CLOSED if not visitor.may(least) else HIDDEN if not seen else 200 if above else CLOSED
                visitor.asks(f"{at}/{path}/", good, verb=verb)
    assert visitor.wrong == []


def _closed(form: str) -> int:
    """An old address leads to the page; there is no history of what is not there."""
    return HIDDEN if form in ("<path:object_id>/", "<path:object_id>/history/") else CLOSED


def test_actions_on_rows_do_what_the_role_may_to_rows_in_reach_only(visitor: Visitor) -> None:
    main, other = visitor.main, visitor.other
    models = [main.ids["model"], other.ids["model"]]
    client = visitor.client
    client.post("/admin/catalog/model/", {"action": "disable_selected", "_selected_action": models})
    disabled = set(Model.objects.filter(enabled=False).values_list("pk", flat=True))
    assert disabled == ({main.ids["model"]} if visitor.may("operator") else set())
    keys = [main.ids["key"], other.ids["key"]]
    client.post("/admin/catalog/apikey/", {"action": "revoke_selected", "_selected_action": keys})
    revoked = set(ApiKey.objects.filter(revoked_at__isnull=False).values_list("pk", flat=True))
    assert revoked == ({main.ids["key"]} if visitor.may("operator") else set())
    for page in ("apikey", "model"):
        menu = client.get(f"/admin/catalog/{page}/{main.ids['key' if page == 'apikey' else 'model']}/change/").content
        assert (b"/rotate/" in menu) == (page == "apikey" and visitor.may("operator"))
        assert b"/card/" not in menu


def test_a_key_of_a_scope_has_no_priority_above_the_others(visitor: Visitor) -> None:
    body = {"project": visitor.main.ids["project"], "models": "", "expires_at_0": "", "expires_at_1": "", "user": ""}
    for priority, made in (("2", False), ("1", False), ("-1", True), ("", True)):
        name = f"new{priority}"
        offered = re.findall(
            r'<option value="(-?\d)"[^>]*>-?\d: ', visitor.client.get("/admin/catalog/apikey/add/").content.decode()
        )
        assert offered == (["0", "-1", "-2"] if visitor.may("operator") else [])
        page = visitor.client.post("/admin/catalog/apikey/add/", {**body, "name": name, "priority": priority})
        found = ApiKey.objects.filter(name=name)
        assert found.exists() == (made and visitor.may("operator"))
        if visitor.may("operator") and not made:
            assert "Select a valid choice" in page.content.decode()
            assert name in page.content.decode()  # what was typed stays
