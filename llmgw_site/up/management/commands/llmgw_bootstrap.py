"""Make a machine ready to be a cluster of one: tables, identity, its node, first scopes, administrator, token and key.

Run before every start; each part is left alone where it is there already. The secrets stand in
`<data>/secrets/quickstart.json` (0600), so that later starts can show them; what was revoked, deleted or has expired is
issued anew. A password that somebody changed is theirs: it is not shown and not touched.
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand
from django.utils import timezone

from catalog.domain import keys as key_forms
from catalog.models import AdminToken, ApiKey, Organisation, Project, Team
from catalog.services import keys, scopes, tokens
from cluster.services import identity, nodes
from llmgw_site.lib import files
from llmgw_site.up.quickstart import secrets_path

ACTOR = "bootstrap"
USER = "admin"
NAME = "default"
SECRET_NAME = "quickstart"
TOKEN_DAYS = 365.0
RENEW_BEFORE = timedelta(days=30)
"""A token this close to its end is replaced at a start, so that a long run does not see it expire."""


class Command(BaseCommand):
    help = __doc__.splitlines()[0]
    requires_system_checks: list[str] = []

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        identity.ensure_identity()
        nodes.enrol_local(settings.CONFIG)
        kept = Kept(secrets_path(settings.CONFIG))
        user = administrator(kept)
        kept.put("admin_token", admin_token(user, kept.get("admin_token")))
        kept.put("api_key", api_key(default_project(), kept.get("api_key")))


class Kept:
    """The file of secrets, written at each change: a crash loses nothing that was issued."""

    def __init__(self, path: Path) -> None:
        files.private_folder(path.parent)
        found = files.read_json(path)
        self._path = path
        self._values: dict[str, str] = found if isinstance(found, dict) else {}

    def get(self, name: str) -> str:
        return self._values.get(name, "")

    def put(self, name: str, value: str) -> None:
        if self._values.get(name) != value:
            self._values[name] = value
            files.write_json(self._path, self._values)


def administrator(kept: Kept) -> Any:
    """The first administrator. A password of their own choice is not known here: kept as ""."""
    users = get_user_model()
    kept.put("admin_user", USER)
    user = users.objects.filter(username=USER).first()
    if user is None:
        # kept before it is set: the other way round, a crash between the two would lock everybody out
        kept.put("admin_password", kept.get("admin_password") or secrets.token_urlsafe(15))
        return users.objects.create_superuser(USER, password=kept.get("admin_password"))
    if not user.check_password(kept.get("admin_password")):
        kept.put("admin_password", "")
    return user


def default_project() -> Project:
    """The project that the first key belongs to, with its team and organisation."""
    organisation = Organisation.objects.filter(name=NAME).first()
    organisation = organisation or scopes.create_organisation(actor=ACTOR, name=NAME)
    team = Team.objects.filter(organisation=organisation, name=NAME).first()
    team = team or scopes.create_team(actor=ACTOR, organisation=organisation, name=NAME)
    project = Project.objects.filter(team=team, name=NAME).first()
    return project or scopes.create_project(actor=ACTOR, team=team, name=NAME)


def admin_token(user: Any, text: str) -> str:
    """A token of the administrator that holds for a while yet: the kept one, or a new one in its place."""
    soon = timezone.now() + RENEW_BEFORE
    live = AdminToken.objects.filter(user=user, revoked_at__isnull=True)
    if text and live.filter(sha256=key_forms.digest(text), expires_at__gt=soon).exists():
        return text
    for old in live.filter(name=SECRET_NAME):
        tokens.revoke(actor=ACTOR, token=old, why="replaced at a start")
    return tokens.issue(actor=ACTOR, user=user, name=SECRET_NAME, days=TOKEN_DAYS)[1].text


def api_key(project: Project, text: str) -> str:
    """A key of the default project: the kept one if it still opens, or a new one in its place."""
    live = ApiKey.objects.filter(project=project, revoked_at__isnull=True)
    if text and live.filter(sha256=key_forms.digest(text), expires_at__isnull=True).exists():
        return text
    for old in live.filter(name=SECRET_NAME):
        keys.revoke(actor=ACTOR, key=old, why="replaced at a start")
    return keys.issue(actor=ACTOR, project=project, name=SECRET_NAME)[1].text
