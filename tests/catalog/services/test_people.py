"""What follows for keys and tokens when a user is put out, removed, or may something else."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from catalog.models import AdminToken, ApiKey, Event
from catalog.signals import catalogue_changed, secrets_revoked
from tests.rows import a_key, a_project, a_token, a_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def heard(django_capture_on_commit_callbacks: Any) -> Any:
    """What the floors above hear while something is done: the kinds of subjects, and how many texts are revoked."""

    def listen_to(what: Any) -> list[Any]:
        told: list[Any] = []

        def changed(subject_kind: str, **kwargs: Any) -> None:
            told.append(subject_kind)

        def revoked(hashes: tuple[str, ...], **kwargs: Any) -> None:
            told.append(len(hashes))

        catalogue_changed.connect(changed)
        secrets_revoked.connect(revoked)
        try:
            with django_capture_on_commit_callbacks(execute=True):
                what()
        finally:
            catalogue_changed.disconnect(changed)
            secrets_revoked.disconnect(revoked)
        return told

    return listen_to


def test_who_is_deactivated_loses_keys_and_tokens_for_good(heard: Any) -> None:
    project, ann, bob = a_project(), a_user("ann"), a_user("bob")
    a_key("hers", project=project, user=ann)
    a_key("his", project=project, user=bob)
    a_key("the project's", project=project)
    a_token(ann, "t")
    ann.is_active = False
    told = heard(ann.save)
    assert told == [1, "key", 1, "token", "user"]
    live = ApiKey.objects.filter(revoked_at__isnull=True).values_list("name", flat=True)
    assert set(live) == {"his", "the project's"}
    assert AdminToken.objects.get().revoked_at is not None
    assert Event.objects.get(kind="key_revoked").why == "the user ann was deactivated"
    ann.is_active = True
    ann.save()
    assert ApiKey.objects.get(name="hers").revoked_at is not None


def test_keys_of_a_user_who_is_removed_do_not_become_the_project_s(heard: Any) -> None:
    ann = a_user("ann")
    key, _ = a_key(user=ann)
    heard(ann.delete)
    key.refresh_from_db()
    assert (key.user, key.revoked_at is not None) == (None, True)


def test_gateways_hear_who_administers_them_and_nothing_of_a_sign_in(heard: Any) -> None:
    root = a_user("root", superuser=True)
    root.is_superuser = False
    assert heard(root.save) == ["user"]
    root.last_login = timezone.now()
    assert heard(lambda: root.save(update_fields=["last_login"])) == []
