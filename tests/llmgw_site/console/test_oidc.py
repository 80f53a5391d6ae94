"""Single sign-on to the console through a real provider: real requests, real signatures; and every answer that must not be taken."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from catalog.models import Event, Identity, RoleGrant
from catalog.services import roles, tokens
from llmgw_site.console import oidc
from tests.fakes.oidc import CLIENT, SECRET, Provider
from tests.rows import ACTOR, a_project, a_user

pytestmark = pytest.mark.django_db


def leave(client: Client, wanted: str = "") -> str:
    """Off to the provider: the address that it sends the browser back to."""
    started = client.get("/admin/oidc/start", {"next": wanted} if wanted else None)
    assert started.status_code == 302, started
    with httpx.Client(trust_env=False, timeout=60) as browser:
        return browser.get(started["location"]).headers["location"]


def come_back(client: Client, address: str) -> Any:
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}")


def sign_in(client: Client) -> str:
    """ "in", or what the sign-in page says."""
    answer = come_back(client, leave(client))
    if answer["location"] != "/admin/login/":
        return "in"
    page: str = client.get("/admin/login/").content.decode()
    return page


def test_a_new_person_gets_an_account_with_the_roles_of_the_claims(provider: Provider) -> None:
    client = Client()
    page = client.get("/admin/login/", {"next": "/admin/nodes"}).content.decode()
    assert "Sign in with Acme" in page
    assert 'href="/admin/oidc/start?next=/admin/nodes"' in page
    answer = come_back(client, leave(client, "/admin/nodes"))
    assert answer["location"] == "/admin/nodes"
    assert client.get("/admin/nodes").status_code == 200
    user = User.objects.get()
    assert (user.username, user.email, user.is_staff, user.is_superuser) == ("ann", "ann@example.com", True, False)
    assert not user.has_usable_password()
    grant = RoleGrant.objects.get()
    assert (grant.role, grant.scope, grant.source) == ("admin", None, "oidc")
    assert Event.objects.filter(kind="user_added", message__contains="ann").exists()
    assert Event.objects.filter(kind="signed_in").exists()


def test_a_person_is_found_again_by_subject_and_follows_the_claims(provider: Provider) -> None:
    main = a_project("main")
    assert sign_in(Client()) == "in"
    user = User.objects.get()
    roles.give(actor=ACTOR, user=user, role="viewer", scope=main.team.organisation)
    provider.person |= {"preferred_username": "ann-married", "groups": ["search", "lost", "other"]}
    provider.in_id_token = False  # then the user info tells
    assert sign_in(Client()) == "in"
    assert User.objects.get().username == "ann"
    told = {(grant.scope_name, grant.role, grant.source) for grant in RoleGrant.objects.all()}
    assert told == {("team:team of main", "operator", "oidc"), ("organisation:org of main", "viewer", "")}
    assert "/userinfo" in provider.seen


def test_a_role_that_was_given_here_stays_whatever_the_claims_say(provider: Provider) -> None:
    main = a_project("main")
    provider.person["groups"] = ["search"]
    assert sign_in(Client()) == "in"
    roles.give(actor=ACTOR, user=User.objects.get(), role="admin", scope=main.team)
    assert sign_in(Client()) == "in"
    provider.person["groups"] = []
    assert sign_in(Client()) == "in"
    assert [(grant.role, grant.source) for grant in RoleGrant.objects.all()] == [("admin", "")]


def test_who_has_no_role_or_was_put_out_does_not_come_in_and_leaves_no_account(provider: Provider) -> None:
    provider.person["groups"] = ["other"]
    assert "oidc_not_allowed" in sign_in(Client())
    assert not User.objects.exists()
    provider.person["groups"] = ["admins"]
    assert sign_in(Client()) == "in"
    User.objects.update(is_active=False)
    assert "the account was deactivated" in sign_in(Client())
    User.objects.update(is_active=True)
    provider.person["groups"] = []
    assert "oidc_not_allowed" in sign_in(Client())


def test_who_lost_every_group_loses_the_roles_though_the_sign_in_is_refused(provider: Provider) -> None:
    """An admin token, or another browser's session, goes on with what the claims say now: nothing."""
    assert sign_in(Client()) == "in"
    ann = User.objects.get()
    _, secret = tokens.issue(actor=ACTOR, user=ann, name="ci")
    headers = {"authorization": f"Bearer {secret.text}"}
    assert Client().get("/api/v1/nodes", headers=headers).status_code == 200
    provider.person["groups"] = []
    assert "oidc_not_allowed" in sign_in(Client())
    assert not RoleGrant.objects.exists()
    assert Client().get("/api/v1/nodes", headers=headers).status_code == 403


def test_a_local_account_is_not_taken_over_by_its_name(provider: Provider) -> None:
    a_user("ann", superuser=True)
    assert "oidc_username_taken" in sign_in(Client())
    assert not Identity.objects.exists()
    client = Client()
    assert client.post("/admin/login/", {"username": "ann", "password": "a long password"}).status_code == 302


@pytest.mark.parametrize("name", [None, "", "with space", "x" * 151, 7, "a\nb"])
def test_a_name_that_is_none_is_refused(provider: Provider, name: Any) -> None:
    provider.person["preferred_username"] = name
    assert "oidc_no_username" in sign_in(Client())


WRONG: dict[str, dict[str, Any]] = {
    "another issuer in the token": {"claims": {"iss": "https://evil.example"}},
    "another audience": {"claims": {"aud": "another-client"}},
    "an audience among others, for another party": {"claims": {"aud": [CLIENT, "x"], "azp": "x"}},
    "an old token": {"claims": {"exp": 1_000_000_000}},
    "a token of tomorrow": {"claims": {"nbf": 4_000_000_000}},
    "another nonce": {"claims": {"nonce": "another"}},
    "no nonce": {"claims": {"nonce": None}},
    "no subject": {"claims": {"sub": None}},
    "no expiry": {"claims": {"exp": None}},
    "another access token": {"claims": {"at_hash": "AAAAAAAAAAAAAAAAAAAAAA"}},
    "another issuer in the answer": {"iss": "https://evil.example"},
    "signed by a stranger": {"signed": "by a stranger"},
    "signed by the shared secret": {"signed": "by the secret"},
    "signed by nobody": {"signed": "by nobody"},
    "no ID token": {"token": {"id_token": None}},
    "a broken ID token": {"token": {"id_token": "a.b.c"}},
    "user info of somebody else": {"userinfo": {"sub": "s-2"}},
}


@pytest.mark.parametrize("what", WRONG)
def test_an_answer_that_was_not_made_for_this_try_is_not_taken(provider: Provider, what: str) -> None:
    provider.faults = WRONG[what]
    client = Client()
    assert "oidc_untrusted" in sign_in(client)
    assert "_auth_user_id" not in client.session
    assert not User.objects.exists()


def test_a_state_counts_once_and_only_in_the_browser_that_began(provider: Provider) -> None:
    client, other = Client(), Client()
    address = leave(client)
    assert come_back(other, address)["location"] == "/admin/login/"
    assert "oidc_untrusted" in other.get("/admin/login/").content.decode()
    swapped = address.replace(parse_qs(urlsplit(address).query)["state"][0], "guessed")
    assert come_back(client, swapped)["location"] == "/admin/login/"
    assert come_back(client, address)["location"] == "/admin/"
    assert come_back(client, address)["location"] == "/admin/login/"


def test_a_code_of_another_try_fails_at_the_provider_by_its_verifier(provider: Provider) -> None:
    """Somebody who got hold of a code cannot use it: only the try that it was made for knows the verifier."""
    stolen = parse_qs(urlsplit(leave(Client())).query)["code"][0]
    client = Client()
    address = leave(client)
    own = parse_qs(urlsplit(address).query)["code"][0]
    assert come_back(client, address.replace(own, stolen))["location"] == "/admin/login/"
    page = client.get("/admin/login/").content.decode()
    assert "oidc_refused" in page
    assert not User.objects.exists()


@pytest.mark.parametrize(("method", "secret"), [("none", ""), ("client_secret_post", SECRET)])
def test_a_client_proves_itself_as_the_provider_wants_it(
    provider: Provider, settings: Any, method: str, secret: str
) -> None:
    """Without a secret it is a public client: its verifier alone stands for it, and is asked for."""
    provider.method = method
    settings.CONFIG = replace(settings.CONFIG, oidc_client_secret=secret)
    assert sign_in(Client()) == "in"
    stolen = parse_qs(urlsplit(leave(Client())).query)["code"][0]
    client = Client()
    address = leave(client)
    own = parse_qs(urlsplit(address).query)["code"][0]
    come_back(client, address.replace(own, stolen))
    assert "this code is not good" in client.get("/admin/login/").content.decode()


def test_a_client_that_the_provider_does_not_take_is_told(provider: Provider, settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, oidc_client_secret="")
    page = sign_in(Client())
    assert "oidc_refused" in page
    assert "invalid_client" in page


def test_two_tabs_sign_in_side_by_side_and_old_tries_are_forgotten(provider: Provider, monkeypatch: Any) -> None:
    client = Client()
    first, second = leave(client), leave(client)
    assert come_back(client, second)["location"] == "/admin/"
    client = Client()
    first = leave(client)
    for _ in range(oidc.MOST_TRIES):
        leave(client)
    assert len(client.session[oidc.TRIES]) == oidc.MOST_TRIES
    assert come_back(client, first)["location"] == "/admin/login/"
    late = leave(client)
    monkeypatch.setattr(oidc, "PATIENCE", -1.0)
    assert come_back(client, late)["location"] == "/admin/login/"


def test_a_try_that_nobody_comes_back_from_leaves_nothing_for_long(provider: Provider) -> None:
    client = Client()
    address = leave(client)
    left = Session.objects.get().expire_date - timezone.now()
    assert left <= timedelta(seconds=oidc.PATIENCE)
    assert come_back(client, address)["location"] == "/admin/"
    assert Session.objects.get().expire_date - timezone.now() > timedelta(days=13)
    client = Client()
    leave(client)  # and then by the password of a local account, in the same browser
    a_user("root", superuser=True)
    assert client.post("/admin/login/", {"username": "root", "password": "a long password"}).status_code == 302
    assert client.session.get_expiry_age() > 13 * 86_400


def test_what_the_provider_refuses_is_told(provider: Provider) -> None:
    provider.faults = {"error": "access_denied"}
    assert "access_denied no" in sign_in(Client())


def test_a_new_signing_key_of_the_provider_is_fetched(provider: Provider) -> None:
    assert sign_in(Client()) == "in"
    provider.rotate()
    assert sign_in(Client()) == "in"
    assert provider.seen.count("/jwks") == 2
    assert provider.seen.count("/.well-known/openid-configuration") == 1


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"issuer": "https://evil.example"}, "oidc_untrusted"),
        ({"authorization_endpoint": None}, "oidc_unreachable"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "oidc_unreachable"),
    ],
)
def test_a_provider_that_says_something_odd_of_itself_is_not_followed(
    provider: Provider, document: dict[str, Any], told: str
) -> None:
    provider.faults = {"document": document}
    client = Client()
    assert client.get("/admin/oidc/start")["location"] == "/admin/login/"
    assert told in client.get("/admin/login/").content.decode()


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://169.254.169.254/token", "never reaches for"),  # a cloud's metadata service
        ("http://10.0.0.1/token", "was not asked"),
        ("http://127.0.0.1:9/token", "did not answer"),  # the provider's own host
    ],
)
def test_addresses_that_the_provider_names_pass_the_guard(provider: Provider, url: str, told: str) -> None:
    provider.faults = {"document": {"token_endpoint": url}}
    assert told in sign_in(Client())


def test_an_endless_answer_is_cut_and_a_silent_provider_is_told(provider: Provider, settings: Any) -> None:
    provider.faults = {"document": {"jwks_uri": f"{provider.issuer}/large"}}
    assert "oidc_unreachable" in sign_in(Client())
    settings.CONFIG = replace(settings.CONFIG, oidc_issuer="http://127.0.0.1:9")
    client = Client()
    assert client.get("/admin/oidc/start").status_code == 302
    assert "oidc_unreachable" in client.get("/admin/login/").content.decode()


@pytest.mark.parametrize(
    "wanted", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"]
)
def test_nobody_is_led_elsewhere_afterwards(provider: Provider, wanted: str) -> None:
    client = Client()
    assert come_back(client, leave(client, wanted))["location"] == "/admin/"


def test_signing_out_ends_the_session_and_leads_to_the_provider_s_own(provider: Provider) -> None:
    client = Client()
    assert sign_in(client) == "in"
    assert client.get("/admin/logout/").status_code == 405
    assert client.post("/admin/logout/")["location"] == "/admin/login/"
    page = client.get("/admin/login/").content.decode()
    assert f"{provider.issuer}/logout?client_id={CLIENT}" in page
    assert client.get("/admin/nodes").status_code == 302
    local = a_user("root", superuser=True)
    client.force_login(local)
    client.post("/admin/logout/")
    assert "/logout?client_id" not in client.get("/admin/login/").content.decode()


def test_without_a_provider_there_is_no_such_page() -> None:
    oidc._provider.cache_clear()
    assert "Sign in with" not in Client().get("/admin/login/").content.decode()
    assert Client().get("/admin/oidc/start").status_code == 404
    assert Client().get("/admin/oidc/callback").status_code == 404
