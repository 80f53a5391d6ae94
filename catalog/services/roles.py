"""Roles: given and taken, of the cluster or of a scope."""

from __future__ import annotations

from typing import Any

from django.db import transaction

from catalog.domain.roles import Role
from catalog.models import RoleGrant
from catalog.models.fields import SCOPES
from catalog.services import holders, rows
from catalog.services.access import Scope
from llmgw_site.lib.errors import Kind, Refused


@transaction.atomic
def give(*, actor: str, user: Any, role: str, scope: Scope | None, source: str = "", why: str = "") -> RoleGrant:
    """Have a user be that of a scope (None: the cluster), in place of the role there may be. Whoever has a role may open the
    console. Raises Refused."""
    if role not in set(Role):
        raise Refused(
            Kind.INVALID, "invalid_value", f"role: there is no {role[:40]!r}, write {', '.join(Role)}.", param="role"
        )
    held = RoleGrant.objects.filter(user=user, **holders.columns(scope, SCOPES)).first()
    told = f"{user.get_username()} is {role} of {_name(scope)}"
    if held is not None:
        changes = {"role": role, "source": source}
        rows.change(held, changes, actor=actor, kind="role_changed", message=told, why=why)
    else:
        row = RoleGrant(user=user, role=role, source=source, created_by=actor[:200], **holders.columns(scope, SCOPES))
        held = rows.add(row, actor=actor, message=told, why=why)
    if not user.is_staff:
        type(user).objects.filter(pk=user.pk).update(is_staff=True)
        user.is_staff = True
    _forget(user)
    return held


def take(*, actor: str, grant: RoleGrant) -> None:
    """Take a role from its user. Keys and tokens stay; a token can do no more than its user."""
    rows.remove(
        grant, actor=actor, message=f"{grant.user.get_username()} is not {grant.role} of {grant.scope_name} any more"
    )
    _forget(grant.user)


def _name(scope: Scope | None) -> str:
    return "the cluster" if scope is None else f"the {scope._meta.model_name} {scope.name}"


def _forget(user: Any) -> None:
    user.__dict__.pop("_role_grants", None)
