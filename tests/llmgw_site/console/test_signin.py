"""Signing in to the console with a password, and trying to."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from catalog.domain.signins import OF_ACCOUNT, OF_ADDRESS, WINDOW
from catalog.models import Event
from catalog.services import events, signins
from llmgw_site.lib.errors import Refused
from tests.llmgw_site.console.conftest import Person

pytestmark = pytest.mark.django_db
HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture(autouse=True)
def fast(settings: Any) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def ann() -> User:
    return User.objects.create_superuser("ann", password="long-enough")


def sign_in(password: str, *, name: str = "ann", address: str = HERE) -> str:
    """ "in", or what the page says."""
    answer = Client(REMOTE_ADDR=address).post("/admin/login/", {"username": name, "password": password})
    return "in" if answer.status_code == 302 else answer.content.decode()


def test_who_tried_too_often_waits_even_with_the_right_password_and_is_told_how_long(ann: User) -> None:
    for _ in range(OF_ACCOUNT):
        assert "Please enter the correct username and password" in sign_in("wrong-password")
    said = sign_in("long-enough")
    assert f"Too many tries to sign in as ann from {HERE}: try again in 14 min" in said
    assert "Allow to sign in again" in said
    assert Event.objects.filter(kind=signins.TRIED).count() == OF_ACCOUNT  # going on fills no table
    assert sign_in("long-enough", address=THERE) == "in"


def test_the_pause_passes(ann: User) -> None:
    for _ in range(OF_ACCOUNT):
        sign_in("wrong-password")
    Event.objects.filter(kind=signins.TRIED).update(at=timezone.now() - timedelta(seconds=WINDOW + 1))
    assert sign_in("long-enough") == "in"


def test_an_administrator_lets_somebody_try_again(ann: User, admin: Client) -> None:
    for _ in range(OF_ACCOUNT):
        sign_in("wrong-password")
    data = {"action": "allow_sign_in", "_selected_action": [ann.pk]}
    assert "May try to sign in again: ann." in admin.post("/admin/auth/user/", data, follow=True).content.decode()
    assert sign_in("long-enough") == "in"
    assert Event.objects.get(kind=signins.ALLOWED).actor == "user:root"


def test_who_may_only_look_at_users_lets_nobody_in(ann: User, person: Person) -> None:
    person("auth.view_user").post("/admin/auth/user/", {"action": "allow_sign_in", "_selected_action": [ann.pk]})
    assert not Event.objects.filter(kind=signins.ALLOWED).exists()


def test_a_success_begins_anew(ann: User) -> None:
    for _ in range(2):
        for _ in range(OF_ACCOUNT - 1):
            sign_in("wrong-password")
        assert sign_in("long-enough") == "in"
    event = Event.objects.filter(kind=signins.SIGNED_IN).latest("at")
    assert (event.actor, event.subject_id) == (f"address:{HERE}", str(ann.pk))


def test_names_that_nobody_has_are_counted_and_not_kept(ann: User) -> None:
    for _ in range(OF_ACCOUNT):
        sign_in("x", name="my-secret-passphrase")
    assert "Too many tries" in sign_in("x", name="my-secret-passphrase")
    assert "my-secret" not in str(list(Event.objects.values()))
    assert sign_in("long-enough") == "in"


def test_many_names_from_one_address_are_too_many(ann: User) -> None:
    for number in range(OF_ADDRESS):
        signins.begin(name=f"name-{number}", address=HERE, now=timezone.now())
    assert "Too many tries" in sign_in("long-enough")
    assert sign_in("long-enough", address=THERE) == "in"


def test_of_many_tries_at_once_none_comes_past_the_limit(ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are noted between the look and the note."""
    append = events.append

    def beside(**words: Any) -> Event:
        for _ in range(OF_ACCOUNT):
            append(**words)
        return append(**words)

    monkeypatch.setattr(events, "append", beside)
    with pytest.raises(Refused) as refused:
        signins.begin(name="ann", address=HERE, now=timezone.now())
    assert refused.value.code == "sign_in_paused"
    assert refused.value.retry_after
