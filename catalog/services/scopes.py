"""Organisations, teams and projects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from django.db import transaction

from catalog.choices import CLASSES, USUAL_CLASS
from catalog.models import Organisation, Project, Team
from catalog.services import access, rows
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Kind, Refused

Scope = Organisation | Team | Project
Made = TypeVar("Made", Organisation, Team, Project)
SETTABLE = frozenset({"name", "allowed_models", "priority_class"})
_ORDER = [value for value, _ in CLASSES]
"""The highest first."""


def may_give_class(user: Any, *, scope: Scope, priority_class: str) -> None:
    """Refuse who may not give the scope, which need not be in the table yet, this class in place of the one it has.

    What goes first goes before requests of others, so who has roles of scopes only gives neither a class above the usual one, nor
    one above that of the scope it is in.
    """
    if (
        priority_class in ("", scope.priority_class)
        or access.reach(user, f"catalog.change_{rows.noun(scope)}").everywhere
    ):
        return
    within = access.above(scope)
    most = max(USUAL_CLASS, within.effective_class if within is not None else USUAL_CLASS, key=_ORDER.index)
    if priority_class in _ORDER and _ORDER.index(priority_class) < _ORDER.index(most):
        text = f"priority_class: {user.get_username()} may give {most} and lower: who is of a higher class goes before other scopes, so a role of the cluster gives it."
        raise Refused(Kind.FORBIDDEN, "permission_denied", text, param="priority_class")


def create_organisation(
    *, actor: str, name: str, allowed_models: Sequence[str] | None = None, priority_class: str = ""
) -> Organisation:
    """A new organisation, without teams."""
    return _add(Organisation(name=name), actor, allowed_models, priority_class)


def create_team(
    *,
    actor: str,
    organisation: Organisation,
    name: str,
    allowed_models: Sequence[str] | None = None,
    priority_class: str = "",
) -> Team:
    """A new team of an organisation."""
    return _add(Team(organisation=organisation, name=name), actor, allowed_models, priority_class)


def create_project(
    *, actor: str, team: Team, name: str, allowed_models: Sequence[str] | None = None, priority_class: str = ""
) -> Project:
    """A new project of a team."""
    return _add(Project(team=team, name=name), actor, allowed_models, priority_class)


def _add(scope: Made, actor: str, allowed_models: Sequence[str] | None, priority_class: str) -> Made:
    scope.allowed_models = allowlist(allowed_models, param="allowed_models")
    scope.priority_class = priority_class
    return rows.add(scope, actor=actor, message=f"{rows.noun(scope)} {scope.name} added")


def change(*, actor: str, scope: Scope, **fields: Any) -> Scope:
    """Set its `name`, its `allowed_models` (names that keys below it may use; None: all) or its `priority_class` (of their requests;
    empty: as the scope above). Keys and usage go by its id: of another name they notice nothing, and another list or class counts
    for them within a second."""
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
