"""Roles: what an admin, an operator and a viewer may do, of the whole cluster or of one scope. Pure.

A role comes to Django permissions (`app.verb_table`). One of the cluster opens them for every row. One of a scope opens fewer, and
only for what is in that scope:

1. viewer    sees the scope and those in it, their keys, models, quotas, limits, budgets and usage, and who has which role
2. operator  makes, rotates and revokes keys, and enables and disables models that the scope or one in it owns, too
3. admin     makes, changes and removes the scopes in it, with their lists, quotas, limits and budgets, those of keys, and gives
             roles, too. What the scope itself may use, and how much, says somebody above it.

Whoever has a role at all has admin tokens of their own: a token can do no more than its user.
"""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The more, the later."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


RANK = {role: number for number, role in enumerate(Role)}
APPS = frozenset({"catalog", "cluster", "guard", "routing"})
"""Django apps whose tables roles are about."""
OWN = frozenset({"catalog.view_admintoken", "catalog.add_admintoken", "catalog.delete_admintoken"})
"""Of everybody with a role: the pages and the API show, and take, one's own tokens only."""

_SEEN = frozenset({"organisation", "team", "project", "apikey", "model", "quota", "limit", "budget", "rolegrant"})
_SCOPED: dict[Role, frozenset[str]] = {
    Role.VIEWER: frozenset({*(f"catalog.view_{name}" for name in _SEEN), "routing.view_usagerecord"}),
    Role.OPERATOR: frozenset(
        {*(f"catalog.{verb}_apikey" for verb in ("add", "change", "delete")), "catalog.change_model"}
    ),
    Role.ADMIN: frozenset(
        f"catalog.{verb}_{name}"
        for verb in ("add", "change", "delete")
        for name in ("team", "project", "quota", "limit", "budget", "rolegrant")
    ),
}
_RUN = frozenset(
    {
        "model",
        "profile",
        "adapter",
        "alias",
        "version",
        "origin",
        "versionorigin",
        "adapterorigin",
        "apikey",
        "job",
        "replica",
    }
)
"""Tables whose rows an operator of the cluster adds, changes and removes."""
_CHANGED = frozenset({"cluster.change_node"})
"""What else such an operator does: maintenance of nodes."""
_PEOPLE = frozenset({"auth.view_user", "auth.add_user", "auth.change_user", "auth.delete_user", "auth.view_group"})


def gives(role: Role, permission: str, *, scoped: bool) -> bool:
    """Whether this role, of one scope or of the cluster, comes with the permission."""
    if permission in OWN:
        return True
    if scoped:
        return any(permission in _SCOPED[lower] for lower in Role if RANK[lower] <= RANK[role])
    app, _, codename = permission.partition(".")
    if role is Role.ADMIN and permission in _PEOPLE:
        return True
    if app not in APPS:
        return False
    verb, _, table = codename.partition("_")
    if verb == "view":
        return table != "admintoken"
    if role is Role.ADMIN:
        return True
    return role is Role.OPERATOR and (permission in _CHANGED or (verb in ("add", "change", "delete") and table in _RUN))
