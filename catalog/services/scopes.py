"""Organisations, teams and projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import transaction

from catalog.models import Organisation, Project, Team
from catalog.services import rows
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Kind, Refused

Scope = Organisation | Team | Project
SETTABLE = frozenset({"name", "allowed_models"})


def create_organisation(*, actor: str, name: str, allowed_models: Sequence[str] | None = None) -> Organisation:
    """A new organisation, without teams."""
    return rows.add(
        Organisation(name=name, allowed_models=allowlist(allowed_models, param="allowed_models")),
        actor=actor,
        message=f"organisation {name} added",
    )


def create_team(
    *, actor: str, organisation: Organisation, name: str, allowed_models: Sequence[str] | None = None
) -> Team:
    """A new team of an organisation."""
    return rows.add(
        Team(organisation=organisation, name=name, allowed_models=allowlist(allowed_models, param="allowed_models")),
        actor=actor,
        message=f"team {name} added",
    )


def create_project(*, actor: str, team: Team, name: str, allowed_models: Sequence[str] | None = None) -> Project:
    """A new project of a team."""
    return rows.add(
        Project(team=team, name=name, allowed_models=allowlist(allowed_models, param="allowed_models")),
        actor=actor,
        message=f"project {name} added",
    )


def change(*, actor: str, scope: Scope, **fields: Any) -> Scope:
    """Set its `name` or its `allowed_models` (names that keys below it may use; None: all). Keys and usage go by its id: of another
    name they notice nothing, and another list counts for them within a second."""
    rows.known(fields, SETTABLE, noun=rows.noun(scope))
    if "allowed_models" in fields:
        fields["allowed_models"] = allowlist(fields["allowed_models"], param="allowed_models")
    return rows.change(scope, fields, actor=actor, message=f"{rows.noun(scope)} {scope.name} changed")


@transaction.atomic
def delete(*, actor: str, scope: Scope) -> None:
    """Delete a scope that holds nothing: no team, no project, no model, no key that still opens anything.

    Revoked keys of a project go with it; usage records keep their ids.
    """
    if isinstance(scope, Project):
        rows.lock(scope)
        live = scope.keys.filter(revoked_at__isnull=True).count()
        if live:
            raise Refused(
                Kind.CONFLICT,
                "still_in_use",
                f"The project {scope.name} has {live} {'key' if live == 1 else 'keys'} that nobody revoked: revoke them first.",
            )
        scope.keys.all().delete()
    rows.remove(scope, actor=actor, message=f"{rows.noun(scope)} {scope.name} removed")
