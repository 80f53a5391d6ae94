"""Organisations, teams and projects."""

from __future__ import annotations

from django.db import transaction

from catalog.models import Organisation, Project, Team
from catalog.services import rows
from llmgw_site.lib.errors import Kind, Refused

Scope = Organisation | Team | Project


def create_organisation(*, actor: str, name: str) -> Organisation:
    """A new organisation, without teams."""
    return rows.add(Organisation(name=name), actor=actor, message=f"organisation {name} added")


def create_team(*, actor: str, organisation: Organisation, name: str) -> Team:
    """A new team of an organisation."""
    return rows.add(Team(organisation=organisation, name=name), actor=actor, message=f"team {name} added")


def create_project(*, actor: str, team: Team, name: str) -> Project:
    """A new project of a team."""
    return rows.add(Project(team=team, name=name), actor=actor, message=f"project {name} added")


def rename(*, actor: str, scope: Scope, name: str) -> Scope:
    """Give an organisation, team or project another name. Keys and usage go by its id and notice nothing."""
    return rows.change(scope, {"name": name}, actor=actor, message=f"{rows.noun(scope)} {scope.name} renamed to {name}")


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
