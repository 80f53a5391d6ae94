"""Every path of `web` refuses strangers unless it is listed here, and people without permissions unless listed too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.rows import a_token, a_user

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
PUBLIC = {
    "/api/v1/schema": "what there is, not what is in it",
    "/api/v1/docs": "the same for people",
    "/admin/login/": "where one signs in",
    "/admin/oidc/start": "leads to the provider of single sign-on",
    "/admin/oidc/callback": "where one comes back from there",
    "/admin/oidc/backchannel-logout": "where it says who signed out there, by a token that it signed",
    "/": "leads to the sign-in",
    "/admin": "leads to the sign-in",
}
JOINS = {"/api/v1/agent/join"}
"""For machines that no signature is expected of: a join token's proof stands for it."""
INSIDE = {"/internal/healthz", "/metrics"}
"""Answered on the unix socket and the metrics listener only: the gateway marks what came in anywhere else."""
ANY_STAFF = {
    "/admin/": "the overview; each part of it asks for its own permission",
    "/admin/overview/parts": "the same parts",
    "/admin/logout/": "one's own session",
    "/admin/password_change/": "one's own password",
    "/admin/password_change/done/": "the same",
    "/admin/jsi18n/": "translations of the admin's scripts",
    "/admin/search/": "the theme's search: lists only what one may see",
}
"""For members of staff without a single permission."""
SAMPLES = {"app_label": "catalog", "content_type_id": "1", "url": "nothing/here"}
CLIENT_LISTENER = {"x-llmgw-listener": "client"}


def walk(patterns: Any, prefix: str = "") -> Iterator[str]:
    """One concrete path for each pattern."""
    for item in patterns:
        route = str(item.pattern).removeprefix("^").removesuffix("$").removesuffix("\\Z")
        route = re.sub(r"<(?:\w+:)?(\w+)>|\(\?P<(\w+)>.*\)", _sample, route)
        if isinstance(item, URLResolver):
            yield from walk(item.url_patterns, prefix + route)
        else:
            assert isinstance(item, URLPattern)
            yield f"/{prefix}{route}"


def _sample(match: re.Match[str]) -> str:
    name = match[1] or match[2]
    return SAMPLES.get(name, "none")


PATHS = sorted(set(walk(get_resolver().url_patterns)))


def test_the_walk_finds_the_paths_that_we_know() -> None:
    known = {
        "/api/v1/models",
        "/api/v1/jobs/none/cancel",
        "/admin/jobs",
        "/admin/catalog/model/add/",
        "/api/v1/agent/usage",
    }
    assert known <= set(PATHS)
    assert set(PUBLIC) | INSIDE <= set(PATHS)


@pytest.mark.django_db
def test_a_stranger_is_refused() -> None:
    client = Client(raise_request_exception=False)
    let_in = []
    for path in PATHS:
        if path in PUBLIC:
            continue
        for method in METHODS:
            answer = client.generic(method, path, headers=CLIENT_LISTENER)
            where = answer["location"] if answer.status_code == 302 else ""
            to_sign_in = where.startswith("/admin/login/?next=") or (path, where) == ("/admin/logout/", "/admin/login/")
            if not (to_sign_in or answer.status_code in (401, 403, 404, 405)):
                let_in.append((method, path, answer.status_code, where))
    assert let_in == []


@pytest.mark.django_db
@pytest.mark.parametrize("path", [path for path in PATHS if path.startswith("/api/v1/agent/") and path not in JOINS])
def test_a_call_without_a_node_s_signature_is_refused_on_the_node_listener(path: str) -> None:
    user = a_user("root", superuser=True)
    for headers in ({}, {"authorization": f"Bearer {a_token(user)}"}):
        answers = [
            Client().generic(method, path, headers={"x-llmgw-listener": "node", **headers}).status_code
            for method in METHODS
        ]
        assert set(answers) <= {401, 404}
        assert 401 in answers


@pytest.mark.django_db
def test_who_has_no_permission_opens_nothing() -> None:
    nobody = a_user("nobody")
    console = Client(raise_request_exception=False)
    token = {"authorization": f"Bearer {a_token(nobody)}"}
    opened = []
    for path in PATHS:
        if path in PUBLIC or path in ANY_STAFF:
            continue
        api = path.startswith("/api/")
        console.force_login(nobody)
        for method in METHODS:
            answer = console.generic(method, path, headers={**CLIENT_LISTENER, **(token if api else {})})
            # there is no such row, or the old address of its page: nothing was shown
            back = answer.status_code == 302 and answer["location"] in ("/admin/", f"{path}change/")
            if answer.status_code not in (403, 404, 405) and not back:
                opened.append((method, path, answer.status_code))
    assert opened == []


@pytest.mark.django_db
def test_a_session_changes_nothing_without_its_csrf_token() -> None:
    """A page of another origin could make a signed-in browser send this."""
    client = Client(enforce_csrf_checks=True, raise_request_exception=False)
    client.force_login(a_user("root", superuser=True))
    passed = []
    for path in PATHS:
        if path in PUBLIC:
            continue
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = client.generic(method, path, b"{}", content_type="application/json", headers=CLIENT_LISTENER)
            if answer.status_code not in (403, 404, 405):
                passed.append((method, path, answer.status_code))
    assert passed == []
