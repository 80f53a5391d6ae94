"""Sign-out that the provider tells: by real signatures, of real sessions; and every token that ends nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from catalog.models import Event, LogoutToken, ProviderSession
from catalog.services import identities
from llmgw_site.console import oidc
from tests.fakes.oidc import CLIENT, Provider
from tests.llmgw_site.console.test_oidc import sign_in
from tests.rows import a_user

pytestmark = pytest.mark.django_db
PATH = "/admin/oidc/backchannel-logout"
EVENT = "http://schemas.openid.net/event/backchannel-logout"


def came(provider: Provider, sid: str | None, subject: str = "s-1") -> Client:
    """A browser that signed in, in the session `sid` of the provider."""
    provider.faults["claims"] = {"sid": sid}
    provider.person |= {"sub": subject, "preferred_username": f"user-{subject}"}
    client = Client()
    assert sign_in(client) == "in"
    return client


def tell(token: str) -> Any:
    """As the provider does: no cookie, no CSRF token."""
    answer = Client(enforce_csrf_checks=True).post(PATH, {"logout_token": token})
    assert answer["Cache-Control"] == "no-store"
    return answer


def of_a_stranger(provider: Provider) -> str:
    """A token that names a key which the provider does not have."""
    _, _, rest = provider.logout_token(sub="s-1").partition(".")
    head = base64.urlsafe_b64encode(json.dumps({"alg": "RS256", "kid": "unknown"}).encode()).decode().rstrip("=")
    return f"{head}.{rest}"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds until keys are looked for again: more than any test takes."""
    monkeypatch.setattr("llmgw_site.lib.oidc.PATIENCE", 600.0)
    return 600.0


def signed_in(client: Client) -> bool:
    return bool(client.get("/admin/nodes").status_code == 200)


def test_the_session_that_is_named_ends_and_no_other(provider: Provider) -> None:
    first, second, other = came(provider, "p-1"), came(provider, "p-2"), came(provider, "p-3", "s-2")
    answer = tell(provider.logout_token(sid="p-1"))
    assert (answer.status_code, answer.content) == (200, b"")
    assert [signed_in(client) for client in (first, second, other)] == [False, True, True]
    told = Event.objects.get(kind="signed_out")
    assert (told.actor, told.subject_id) == (f"oidc:{provider.issuer}", str(User.objects.get(username="user-s-1").pk))
    assert tell(provider.logout_token(sid="p-2", sub="s-1")).status_code == 200
    assert [signed_in(client) for client in (second, other)] == [False, True]


def test_all_sessions_of_the_person_end_where_none_is_named(provider: Provider) -> None:
    first, second, other = came(provider, "p-1"), came(provider, None), came(provider, "p-3", "s-2")
    assert tell(provider.logout_token(sub="s-1")).status_code == 200
    assert [signed_in(client) for client in (first, second, other)] == [False, False, True]


def test_a_session_whose_name_the_provider_did_not_tell_ends_with_any_of_the_person(provider: Provider) -> None:
    nameless, named, other = came(provider, None), came(provider, "p-2"), came(provider, None, "s-2")
    assert tell(provider.logout_token(sid="p-1")).status_code == 200  # of whom is not said
    assert [signed_in(client) for client in (nameless, named, other)] == [True, True, True]
    assert tell(provider.logout_token(sid="p-1", sub="s-1")).status_code == 200
    assert [signed_in(client) for client in (nameless, named, other)] == [False, True, True]


def test_a_session_of_somebody_else_does_not_end_by_its_name(provider: Provider) -> None:
    other = came(provider, "p-1", "s-2")
    assert tell(provider.logout_token(sid="p-1", sub="s-1")).status_code == 200
    assert signed_in(other)
    assert not Event.objects.filter(kind="signed_out").exists()


def test_local_sessions_stay_also_of_the_same_user(provider: Provider) -> None:
    came(provider, "p-1")
    local, same = Client(), Client()
    local.force_login(a_user("root", superuser=True))
    same.force_login(User.objects.get(username="user-s-1"))
    assert tell(provider.logout_token(sub="s-1")).status_code == 200
    assert signed_in(local)
    assert signed_in(same)


def test_who_signs_in_again_over_an_open_session_is_known_by_the_new_one(provider: Provider) -> None:
    """The same browser: as the same person, in another session of the provider; and as somebody else."""
    client = came(provider, "p-1")
    provider.faults["claims"] = {"sid": "p-2"}
    assert sign_in(client) == "in"
    assert tell(provider.logout_token(sid="p-1")).status_code == 200
    assert signed_in(client)
    provider.person |= {"sub": "s-2", "preferred_username": "user-s-2"}
    provider.faults["claims"] = {"sid": "p-3"}
    assert sign_in(client) == "in"
    assert tell(provider.logout_token(sub="s-1")).status_code == 200
    assert signed_in(client)
    assert tell(provider.logout_token(sid="p-3")).status_code == 200
    assert not signed_in(client)


def test_what_is_kept_of_a_session_goes_with_it(provider: Provider) -> None:
    client = came(provider, "p-1")
    client.post("/admin/logout/")
    assert not ProviderSession.objects.exists()
    came(provider, "p-2")
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    client.session.clear_expired()
    assert not ProviderSession.objects.exists()
    assert tell(provider.logout_token(sid="p-2")).status_code == 200


def test_a_session_ends_also_after_a_password_was_set_in_it(provider: Provider) -> None:
    """Of somebody, or one's own: the session has another key from then on."""
    came(provider, "p-1")
    ann = User.objects.get(username="user-s-1")
    ann.is_superuser = True
    ann.set_password("a long password")
    ann.save()
    new = {"password1": "another long one", "password2": "another long one", "usable_password": "true"}
    own = {"old_password": "a long password", "new_password1": "another long one", "new_password2": "another long one"}
    for sid, path, form in (
        ("p-2", f"/admin/auth/user/{a_user('bob').pk}/password/", new),
        ("p-3", "/admin/password_change/", own),
    ):
        client = came(provider, sid)
        before = client.session.session_key
        assert client.post(path, form).status_code == 302
        assert client.session.session_key != before
        assert signed_in(client)
        assert tell(provider.logout_token(sid=sid)).status_code == 200
        assert not signed_in(client)


def test_a_token_counts_once_and_is_known_for_longer_than_it_is_good(provider: Provider) -> None:
    token = provider.logout_token(sub="s-1", jti="once")
    assert tell(token).status_code == 200
    client = came(provider, "p-1")
    again = tell(token)
    assert again.status_code == 400
    assert "taken before" in again.json()["error_description"]
    assert signed_in(client)
    LogoutToken.objects.update(created_at=timezone.now() - identities.KEPT - timedelta(seconds=1))
    assert tell(provider.logout_token(sub="s-2")).status_code == 200
    assert not LogoutToken.objects.filter(jti="once").exists()


WRONG: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "another-client"},
    "audiences without us": {"aud": ["a", "b"]},
    "no audience": {"aud": None},
    "no time": {"iat": None},
    "a time that is none": {"iat": "now"},
    "a time that is a truth": {"iat": True},
    "an old one": {"iat": 1_000_000_000},
    "one of tomorrow": {"iat": 4_000_000_000},
    "an expired one": {"exp": 1_000_000_000},
    "no expiry": {"exp": None},
    "no events": {"events": None},
    "another event": {"events": {"http://schemas.openid.net/event/other": {}}},
    "an event that is no object": {"events": {EVENT: True}},
    "events that are a list": {"events": [EVENT]},
    "a nonce": {"nonce": "n"},
    "no name of its own": {"jti": None},
    "a name that is none": {"jti": 7},
    "a name that no table holds": {"jti": "a\x00b"},
    "a name without end": {"jti": "x" * 300},
    "neither session nor person": {"sub": None},
    "empty names": {"sub": "", "sid": ""},
    "a person that is no text": {"sub": ["s-1"]},
    "a session that is no text": {"sid": 1},
    "the type of an access token": {"typ": "at+jwt"},
}


@pytest.mark.parametrize("what", WRONG)
def test_a_token_that_is_not_what_it_has_to_be_ends_nothing(provider: Provider, what: str) -> None:
    client = came(provider, "p-1")
    answer = tell(provider.logout_token(**{"sub": "s-1", **WRONG[what]}))
    assert answer.status_code == 400
    assert answer.json()["error"] == "invalid_request"
    assert "oidc_untrusted" in answer.json()["error_description"]
    assert signed_in(client)
    assert not LogoutToken.objects.exists()


@pytest.mark.parametrize("signed", ["by a stranger", "by the secret", "by nobody"])
def test_a_token_that_the_provider_did_not_sign_ends_nothing(provider: Provider, signed: str) -> None:
    client = came(provider, "p-1")
    provider.faults["signed"] = signed
    assert tell(provider.logout_token(sub="s-1")).status_code == 400
    assert signed_in(client)


@pytest.mark.parametrize("text", ["", "a.b.c", "x" * 100_000, "\x00"])
def test_what_is_no_token_is_refused(provider: Provider, text: str) -> None:
    assert tell(text).status_code == 400
    assert Client().get(PATH).status_code == 405
    assert Client().post(PATH, b"{", content_type="application/json").status_code == 400


@pytest.mark.parametrize("claims", [{"aud": ["x", CLIENT]}, {"typ": None}, {"typ": "JWT"}, {"sid": "unknown"}])
def test_what_a_token_may_look_like(provider: Provider, claims: dict[str, Any]) -> None:
    assert tell(provider.logout_token(**{"sub": "s-1", **claims})).status_code == 200


def test_keys_that_strangers_name_are_not_asked_for_each_time(
    provider: Provider, patient: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send a token: it makes no requests to the provider. A new key of the provider is soon found all the same."""
    came(provider, "p-1")
    assert provider.seen.count("/jwks") == 1
    for _ in range(5):
        assert tell(of_a_stranger(provider)).status_code == 400
    assert provider.seen.count("/jwks") == 1
    provider.rotate()
    monkeypatch.setattr("llmgw_site.lib.oidc.PATIENCE", 0.0)
    assert tell(provider.logout_token(sub="s-1")).status_code == 200
    assert provider.seen.count("/jwks") == 2


def test_where_keys_cannot_be_had_strangers_begin_one_look_for_them_at_most(provider: Provider, patient: float) -> None:
    """Each look may take half a minute, and whoever signs in would wait behind it."""
    came(provider, "p-1")
    it = oidc.provider()
    assert it is not None
    it._keys_at -= patient
    provider.faults["jwks"] = 503
    for _ in range(5):
        assert tell(of_a_stranger(provider)).status_code == 400
    assert provider.seen.count("/jwks") == 2
    assert tell(provider.logout_token(sub="s-1")).status_code == 200, "the keys of before are still good"


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        ({"discovery": 503}, "/.well-known/openid-configuration"),
        ({"document": {"issuer": "https://evil.example"}}, "/.well-known/openid-configuration"),
        ({"jwks": 503}, "/jwks"),
        ({"keys": {"keys": [{"kty": "odd"}]}}, "/jwks"),
    ],
)
def test_where_nothing_is_known_yet_strangers_begin_one_look_at_most_and_a_failure_is_soon_forgotten(
    provider: Provider, patient: float, fault: dict[str, Any], path: str
) -> None:
    provider.faults = fault
    told = [tell(provider.logout_token(sub="s-1")) for _ in range(5)]
    assert {answer.status_code for answer in told} == {400}
    assert len({answer.content for answer in told}) == 1, "the reason is told each time"
    assert provider.seen.count(path) == 1
    it = oidc.provider()
    assert it is not None
    provider.faults = {}
    it._failed = {url: (at - patient, why) for url, (at, why) in it._failed.items()}
    assert tell(provider.logout_token(sub="s-1")).status_code == 200
    assert not it._failed


def test_without_a_provider_nobody_tells_anything(settings: Any) -> None:
    settings.CONFIG = replace(settings.CONFIG, oidc_issuer="")
    assert Client().post(PATH, {"logout_token": "x"}).status_code == 404
