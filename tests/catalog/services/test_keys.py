"""API keys."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.utils import timezone

from catalog import selectors
from catalog.domain.keys import digest
from catalog.models import ApiKey, Event
from catalog.services import keys
from catalog.signals import catalogue_changed
from llmgw_site.lib.errors import Refused
from tests.rows import ACTOR, a_key, a_project, a_user

pytestmark = pytest.mark.django_db


def test_f31_the_text_of_a_key_is_in_no_row_and_its_hash_in_no_event() -> None:
    key, text = a_key()
    keys.revoke(actor=ACTOR, key=key)
    assert key.sha256 == digest(text)
    stored = serializers.serialize("json", [*ApiKey.objects.all(), *Event.objects.all()])
    assert text not in stored
    assert key.sha256 not in serializers.serialize("json", Event.objects.all())
    assert text[:15] in stored


def test_two_keys_differ() -> None:
    project = a_project()
    assert a_key("one", project=project)[1] != a_key("two", project=project)[1]


def test_a_name_is_free_again_after_revoking() -> None:
    project = a_project()
    key, _ = a_key("bot", project=project)
    with pytest.raises(Refused) as refused:
        a_key("bot", project=project)
    assert refused.value.code == "name_taken"
    keys.revoke(actor=ACTOR, key=key, why="leaked")
    a_key("bot", project=project)
    assert Event.objects.get(kind="key_revoked").why == "leaked"


def test_revoking_twice_is_one_event_and_keeps_the_first_time() -> None:
    key, _ = a_key()
    first = keys.revoke(actor=ACTOR, key=key).revoked_at
    assert keys.revoke(actor=ACTOR, key=ApiKey.objects.get()).revoked_at == first
    key.refresh_from_db()
    assert key.revoked_at == first
    assert Event.objects.filter(kind="key_revoked").count() == 1


@pytest.mark.parametrize("models", [[], [""], ["a b"], "abc", [1], {"a": 1}, ["x"] * 1001, ["-x"], ["x\n"], ["é"]])
def test_an_allowlist_that_is_none_is_refused(models: Any) -> None:
    project = a_project()
    with pytest.raises(Refused) as refused:
        keys.issue(actor=ACTOR, project=project, name="k", models=models)
    assert refused.value.param == "models"
    assert not ApiKey.objects.exists()


def test_an_allowlist_keeps_each_name_once() -> None:
    assert a_key(models=["b", "a/x:1", "b"])[0].models == ["b", "a/x:1"]


def test_a_key_that_would_be_expired_at_birth_is_refused() -> None:
    project = a_project()
    with pytest.raises(Refused, match="over already"):
        keys.issue(actor=ACTOR, project=project, name="k", expires_at=timezone.now() - timedelta(seconds=1))


def test_touch_only_moves_forward() -> None:
    key, _ = a_key()
    now = timezone.now()
    for at in (now, now - timedelta(hours=1)):
        keys.touch(used={key.pk: at, "key_unknown": at})
    key.refresh_from_db()
    assert key.last_used_at == now


def test_a_busy_key_is_written_once_a_minute_and_not_with_every_batch(django_assert_num_queries: Any) -> None:
    key, _ = a_key()
    now = timezone.now()
    keys.touch(used={key.pk: now})
    with django_assert_num_queries(1):
        keys.touch(used={key.pk: now + timedelta(seconds=59)})
    keys.touch(used={key.pk: now + timedelta(seconds=60)})
    key.refresh_from_db()
    assert key.last_used_at == now + timedelta(seconds=60)


def test_the_floors_above_hear_of_a_change_after_its_commit(django_capture_on_commit_callbacks: Any) -> None:
    heard: list[dict[str, Any]] = []

    def listen(**what: Any) -> None:
        heard.append({name: what[name] for name in ("subject_kind", "subject_id")})

    catalogue_changed.connect(listen)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            key, _ = a_key()
            assert heard == []
    finally:
        catalogue_changed.disconnect(listen)
    assert heard[-1] == {"subject_kind": "key", "subject_id": key.pk}
    json.dumps(heard)


def views() -> dict[str, float | None]:
    """What gateways are told: texts by their hash, and until when."""
    return {view.sha256: view.expires_at for view in selectors.key_views(now=timezone.now())}


def test_a_rotated_key_has_two_texts_until_the_former_one_ends() -> None:
    key, former = a_key()
    fresh, secret = keys.rotate(actor=ACTOR, key=key, grace=3600, why="yearly")
    assert fresh.pk == key.pk
    assert ApiKey.objects.count() == 1
    assert (key.sha256, key.former_sha256) == (digest(secret.text), digest(former))
    assert (key.prefix, key.former_prefix) == (secret.text[:15], former[:15])
    ends = views()[digest(former)]
    assert ends == pytest.approx(timezone.now().timestamp() + 3600, abs=60)
    assert views()[digest(secret.text)] is None
    later = selectors.key_views(now=timezone.now() + timedelta(hours=2))
    assert [view.sha256 for view in later] == [digest(secret.text)]
    event = Event.objects.get(kind="key_rotated")
    assert event.why == "yearly"
    stored = serializers.serialize("json", Event.objects.all())
    assert not any(text in stored for text in (former, secret.text, digest(former), digest(secret.text)))


def test_a_second_rotation_ends_the_text_before_the_former_one_and_no_grace_ends_both() -> None:
    key, first = a_key()
    second = keys.rotate(actor=ACTOR, key=key, grace=3600)[1].text
    third = keys.rotate(actor=ACTOR, key=key, grace=3600)[1].text
    assert set(views()) == {digest(second), digest(third)}
    assert digest(first) not in views()
    fourth = keys.rotate(actor=ACTOR, key=key, grace=0)[1].text
    assert set(views()) == {digest(fourth)}
    assert (key.former_sha256, key.former_until) == (None, None)


def test_the_former_text_of_a_key_that_expires_ends_with_it() -> None:
    at = timezone.now() + timedelta(minutes=5)
    key, former = a_key(expires_at=at)
    keys.rotate(actor=ACTOR, key=key, grace=3600)
    assert views()[digest(former)] == at.timestamp()


def test_what_has_ended_is_not_rotated_and_a_grace_has_bounds() -> None:
    key, _ = a_key("old")
    for grace in (-1.0, keys.LONGEST_GRACE + 1, float("nan")):
        with pytest.raises(Refused, match="grace: 0 to") as refused:
            keys.rotate(actor=ACTOR, key=key, grace=grace)
        assert refused.value.param == "grace"
    keys.revoke(actor=ACTOR, key=key)
    with pytest.raises(Refused, match="was revoked: make a new one") as refused:
        keys.rotate(actor=ACTOR, key=key, grace=0)
    assert refused.value.code == "key_ended"
    late, _ = a_key("late", expires_at=timezone.now() + timedelta(hours=1))
    ApiKey.objects.filter(pk=late.pk).update(expires_at=timezone.now())
    with pytest.raises(Refused, match="has expired"):
        keys.rotate(actor=ACTOR, key=late, grace=0)


def test_a_key_of_a_user_who_is_put_out_is_told_no_gateway() -> None:
    user = a_user("ann")
    key, text = a_key(user=user)
    assert [view.user_id for view in selectors.key_views(now=timezone.now())] == [str(user.pk)]
    type(user).objects.filter(pk=user.pk).update(is_active=False)
    assert digest(text) not in views()
    user.delete()
    key.refresh_from_db()
    assert key.user is None
