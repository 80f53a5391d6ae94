"""The bootstrap makes what is missing, leaves what is there, and survives being cut off anywhere."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.utils import timezone

from catalog.models import AdminToken, ApiKey, Organisation, Project
from catalog.services import keys, scopes, tokens
from cluster.models import ClusterIdentity, Node
from llmgw_site.lib import files
from llmgw_site.up.management.commands import llmgw_bootstrap
from llmgw_site.up.quickstart import secrets_path

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _own_data(settings: Any, tmp_path: Path) -> None:
    settings.CONFIG = dataclasses.replace(settings.CONFIG, data=tmp_path / "data")


def bootstrap(settings: Any) -> dict[str, str]:
    """Run it; what it keeps."""
    call_command("llmgw_bootstrap")
    kept: dict[str, str] = files.read_json(secrets_path(settings.CONFIG))
    return kept


def test_a_fresh_machine_gets_everything_once(settings: Any) -> None:
    kept = bootstrap(settings)
    assert set(kept) == {"admin_user", "admin_password", "admin_token", "api_key"}
    assert secrets_path(settings.CONFIG).stat().st_mode & 0o777 == 0o600
    assert settings.CONFIG.node_file.stat().st_mode & 0o777 == 0o600
    user = get_user_model().objects.get(username=kept["admin_user"])
    assert user.is_superuser
    assert user.check_password(kept["admin_password"])
    assert tokens.authenticate(kept["admin_token"], now=timezone.now()).user == user

    assert bootstrap(settings) == kept
    for model in (ClusterIdentity, Node, Organisation, Project, ApiKey, AdminToken):
        assert model._default_manager.count() == 1, model


def test_a_changed_password_is_not_shown_and_not_touched(settings: Any) -> None:
    bootstrap(settings)
    user = get_user_model().objects.get()
    user.set_password("of my own choice")
    user.save()
    assert bootstrap(settings)["admin_password"] == ""
    assert get_user_model().objects.get().check_password("of my own choice")


def test_what_was_revoked_is_issued_anew(settings: Any) -> None:
    before = bootstrap(settings)
    keys.revoke(actor="user:x", key=ApiKey.objects.get())
    tokens.revoke(actor="user:x", token=AdminToken.objects.get())
    after = bootstrap(settings)
    assert {name for name in after if after[name] != before[name]} == {"api_key", "admin_token"}


def test_a_token_that_expires_soon_is_replaced(settings: Any) -> None:
    before = bootstrap(settings)
    AdminToken.objects.update(expires_at=timezone.now() + timedelta(days=3))
    after = bootstrap(settings)
    assert after["admin_token"] != before["admin_token"]
    assert AdminToken.objects.filter(revoked_at__isnull=True).count() == 1


def test_a_deleted_administrator_comes_back_with_the_password_that_was_shown(settings: Any) -> None:
    before = bootstrap(settings)
    get_user_model().objects.all().delete()
    after = bootstrap(settings)
    assert get_user_model().objects.get().check_password(after["admin_password"])
    assert after["admin_password"] == before["admin_password"]


def test_a_fresh_database_beside_old_files_is_made_whole(settings: Any) -> None:
    before = bootstrap(settings)
    identity = settings.CONFIG.node_file.read_bytes()
    for model in (AdminToken, ApiKey, Project, get_user_model(), Node, ClusterIdentity):
        model._default_manager.all().delete()
    after = bootstrap(settings)
    assert after["api_key"] != before["api_key"]
    assert settings.CONFIG.node_file.read_bytes() != identity  # the controllers' key is another
    assert Node.objects.count() == 1


@pytest.mark.parametrize("crash", ["administrator", "admin_token", "default_project", "api_key"])
def test_a_crash_anywhere_is_mended_by_the_next_start(
    settings: Any, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    whole = getattr(llmgw_bootstrap, crash)

    def done_but_not_told(*args: Any) -> None:
        whole(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(llmgw_bootstrap, crash, done_but_not_told)
        with pytest.raises(KeyboardInterrupt):
            call_command("llmgw_bootstrap")
    kept = bootstrap(settings)
    assert get_user_model().objects.get().check_password(kept["admin_password"])
    assert tokens.authenticate(kept["admin_token"], now=timezone.now())
    assert ApiKey.objects.filter(revoked_at__isnull=True).count() == 1


def test_the_default_scopes_of_somebody_else_are_taken_as_they_are(settings: Any) -> None:
    organisation = scopes.create_organisation(actor="user:x", name="default")
    bootstrap(settings)
    assert Organisation.objects.get() == organisation
