"""Admin tokens."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.models import AdminToken, Event
from catalog.services import tokens
from llmgw_site.lib.errors import Refused
from tests.rows import ACTOR, a_key, a_token, a_user

pytestmark = pytest.mark.django_db


def test_a_token_is_recognised_with_one_query(django_assert_num_queries: object) -> None:
    user = a_user()
    text = a_token(user)
    with django_assert_num_queries(1):  # type: ignore[operator]
        assert tokens.authenticate(text, now=timezone.now()).user == user


def refusal(text: str, *, later: float = 0) -> str:
    with pytest.raises(Refused) as refused:
        tokens.authenticate(text, now=timezone.now() + timedelta(days=later))
    assert text not in refused.value.message
    return refused.value.code


def test_what_is_no_live_token_is_refused() -> None:
    user = a_user()
    text = a_token(user, days=1)
    assert refusal("at-llmgw-nonsense") == "invalid_admin_token"
    assert refusal("nonsense") == "invalid_admin_token"
    assert refusal(a_key()[1]) == "admin_token_needed"
    assert refusal(text, later=1.01) == "admin_token_expired"
    user.is_active = False
    user.save()
    assert refusal(text) == "invalid_admin_token"
    user.is_active = True
    user.save()
    tokens.revoke(actor=ACTOR, token=AdminToken.objects.get())
    assert refusal(text) == "invalid_admin_token"


@pytest.mark.parametrize("days", [0, -1, 4000, float("nan"), float("inf")])
def test_a_token_must_live_a_while_and_not_for_ever(days: float) -> None:
    user = a_user()
    with pytest.raises(Refused):
        tokens.issue(actor=ACTOR, user=user, name="t", days=days)
    assert not AdminToken.objects.exists()


def test_use_is_noted_once_a_minute(django_assert_num_queries: object) -> None:
    a_token(a_user())
    token, now = AdminToken.objects.get(), timezone.now()
    tokens.touch(token, now=now)
    token.refresh_from_db()
    with django_assert_num_queries(0):  # type: ignore[operator]
        tokens.touch(token, now=now + timedelta(seconds=50))
    tokens.touch(token, now=now + timedelta(seconds=70))
    token.refresh_from_db()
    assert token.last_used_at == now + timedelta(seconds=70)
    assert not Event.objects.filter(kind="token_changed").exists()
