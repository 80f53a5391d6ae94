"""A key's own pages: rotated with a grace, its text shown once; refusals in the form."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from catalog.models import ApiKey, Event
from catalog.services import keys
from tests.llmgw_site.console.conftest import Person
from tests.rows import ACTOR, a_key

pytestmark = pytest.mark.django_db


def words(page: bytes) -> str:
    return re.sub(r"\s+", " ", page.decode())


def test_a_key_is_rotated_and_its_new_text_is_shown_once(admin: Client) -> None:
    key, former = a_key("bot")
    page = words(admin.get(f"/admin/catalog/apikey/{key.pk}/change/").content)
    assert "Rotate" in page
    form = words(admin.get(f"/admin/keys/{key.pk}/rotate").content)
    assert former[:15] in form
    assert '<option value="86400" selected>' in form
    done = admin.post(f"/admin/keys/{key.pk}/rotate", {"grace": "3600", "why": "yearly"}, follow=True)
    shown = re.findall(r"sk-llmgw-[\w-]{43}", done.content.decode())
    assert len(set(shown)) == 1
    key.refresh_from_db()
    assert key.prefix == shown[0][:15]
    assert Event.objects.get(kind="key_rotated").why == "yearly"
    page = words(admin.get(f"/admin/catalog/apikey/{key.pk}/change/").content)
    assert shown[0] not in page
    assert f"UTC also {former[:15]}" in page
    assert former[:15] in words(admin.get("/admin/catalog/apikey/").content)


def test_a_refusal_stands_in_the_form_and_changes_nothing(admin: Client) -> None:
    key, _ = a_key("bot")
    for grace in ("", "x", "-1", "99999999"):
        answer = admin.post(f"/admin/keys/{key.pk}/rotate", {"grace": grace, "why": "it leaked"})
        assert answer.status_code == 409
        page = answer.content.decode()
        assert 'id="error-grace">0 to' in page
        assert 'value="it leaked"' in page
    keys.revoke(actor=ACTOR, key=key)
    assert "key_ended" in words(admin.post(f"/admin/keys/{key.pk}/rotate", {"grace": "0"}).content)
    assert ApiKey.objects.get().rotated_at is None
    assert admin.get("/admin/keys/key_none/rotate").status_code == 302


def test_who_may_only_look_does_not_rotate(person: Person) -> None:
    key, _ = a_key("bot")
    client = person("catalog.view_apikey")
    assert "key-rotate" not in words(client.get(f"/admin/catalog/apikey/{key.pk}/change/").content)
    assert "/rotate" not in words(client.get(f"/admin/catalog/apikey/{key.pk}/change/").content)
    assert client.post(f"/admin/keys/{key.pk}/rotate", {"grace": "0"}).status_code == 403
