"""What a user may see and change: roles as Django permissions, and which rows a role of a scope reaches.

`user.has_perm(...)` is true for what somebody may do everywhere: a superuser, a permission that was given directly or by a group, a
role of the cluster. What somebody may do in some scopes only is a `Reach`; pages and endpoints that know of scopes ask for it, and
all others stay closed to who has no more than that.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeVar

from django.contrib.auth.backends import BaseBackend
from django.contrib.auth.models import Permission
from django.db.models import Model as Table
from django.db.models import Q, QuerySet

from catalog.domain.roles import APPS, OWN, Role, gives
from catalog.models import ApiKey, Organisation, Project, RoleGrant, Team
from llmgw_site.lib.errors import Kind, Refused

Row = TypeVar("Row", bound=Table)
Scope = Organisation | Team | Project
Holder = Scope | ApiKey
"""What limits and budgets are of."""
Paths = tuple[tuple[str, str], ...]
"""(kind of scope, path of the query to it) for a table: a row is in reach where one of them leads to a scope in reach."""

ORGANISATIONS: Paths = (("organisation", "pk"),)
TEAMS: Paths = (("team", "pk"), ("organisation", "organisation"))
PROJECTS: Paths = (("project", "pk"), ("team", "team"), ("organisation", "team__organisation"))
IN_PROJECT: Paths = (("project", "project"), ("team", "project__team"), ("organisation", "project__team__organisation"))
IN_SCOPE: Paths = (
    *IN_PROJECT,
    ("team", "team"),
    ("organisation", "team__organisation"),
    ("organisation", "organisation"),
)
"""Of what a project, or a team or organisation itself, has."""
HELD: Paths = (*IN_SCOPE, *((kind, f"key__{path}") for kind, path in IN_PROJECT))
"""Of what a scope or a key has."""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Where somebody holds a permission: `everywhere`, or in these scopes, by id, and all that is in them."""

    everywhere: bool = False
    organisations: frozenset[str] = frozenset()
    teams: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()

    @property
    def anywhere(self) -> bool:
        return self.everywhere or bool(self.organisations or self.teams or self.projects)

    def __or__(self, other: Reach) -> Reach:
        return Reach(
            everywhere=self.everywhere or other.everywhere,
            organisations=self.organisations | other.organisations,
            teams=self.teams | other.teams,
            projects=self.projects | other.projects,
        )

    def of(self, kind: str) -> frozenset[str]:
        return {"organisation": self.organisations, "team": self.teams, "project": self.projects}[kind]

    @property
    def ids(self) -> frozenset[str]:
        """Of the scopes; not of what is in them."""
        return self.organisations | self.teams | self.projects

    def covers(self, scope: Holder | None) -> bool:
        """Whether this scope is one of those, or in one. None: the cluster."""
        if self.everywhere or scope is None:
            return self.everywhere
        if isinstance(scope, ApiKey):
            return self.covers(scope.project)
        if isinstance(scope, Project):
            return scope.pk in self.projects or self.covers(scope.team)
        if isinstance(scope, Team):
            return scope.pk in self.teams or scope.organisation_id in self.organisations
        return scope.pk in self.organisations

    def covers_below(self, scope: Holder) -> bool:
        """Whether a scope above this one is one of those: what governs a scope or a key comes from above."""
        return self.covers(above(scope))

    def of_rows(self, rows: QuerySet[Row], paths: Paths) -> QuerySet[Row]:
        """Those rows that are in reach."""
        if self.everywhere:
            return rows
        found = Q(pk__in=[])
        for kind, path in paths:
            if ids := self.of(kind):
                found |= Q(**{f"{path}__in": ids})
        return rows.filter(found)


EVERYWHERE = Reach(everywhere=True)


def above(of: Holder) -> Scope | None:
    """What it is right in; None: the cluster."""
    if isinstance(of, ApiKey):
        return of.project
    if isinstance(of, Project):
        return of.team
    return of.organisation if isinstance(of, Team) else None


def grants(user: Any) -> list[RoleGrant]:
    """The roles of a user. One query for each user that a request has."""
    if not getattr(user, "is_active", False) or user.pk is None:
        return []
    held: list[RoleGrant] | None = getattr(user, "_role_grants", None)
    if held is None:
        held = user._role_grants = list(RoleGrant.objects.filter(user_id=user.pk))
    return held


def reach(user: Any, permission: str) -> Reach:
    """Where this user holds the permission."""
    if user.has_perm(permission):
        return Reach(everywhere=True)
    held = [grant for grant in grants(user) if gives(Role(grant.role), permission, scoped=_of_scope(grant))]
    return Reach(
        organisations=frozenset(grant.organisation_id for grant in held if grant.organisation_id),
        teams=frozenset(grant.team_id for grant in held if grant.team_id),
        projects=frozenset(grant.project_id for grant in held if grant.project_id),
    )


def anywhere(user: Any, permissions: Collection[str]) -> bool:
    """Whether the user holds each of these somewhere."""
    return all(reach(user, permission).anywhere for permission in permissions)


def require(user: Any, permission: str, scope: Holder | None, *, below: bool = False) -> None:
    """Refuse who does not hold the permission for this scope (None: the cluster), or, `below`, for one above it."""
    held = reach(user, permission)
    if held.covers_below(scope) if below and scope is not None else held.covers(scope):
        return
    raise lacks(user, permission, "the cluster" if scope is None else f"the {scope._meta.verbose_name} {scope.name}")


def lacks(user: Any, permission: str, what: str) -> Refused:
    return Refused(
        Kind.FORBIDDEN,
        "permission_denied",
        f"{user.get_username()} lacks the permission {permission} for {what}: an administrator can give it.",
    )


def project_ids(held: Reach) -> QuerySet[Project, str] | None:
    """Ids of the projects in reach, for a table that holds such ids; None: all of them."""
    return None if held.everywhere else held.of_rows(Project.objects.all(), PROJECTS).values_list("pk", flat=True)


def is_in(user: Any, project: Project) -> bool:
    """Whether the user belongs to this project: by a role of it, of a scope above or of the cluster, or as a superuser."""
    if user.is_superuser:
        return True
    mine = {project.pk, project.team_id, project.team.organisation_id}
    return any(
        not _of_scope(grant) or {grant.project_id, grant.team_id, grant.organisation_id} & mine
        for grant in grants(user)
    )


def _of_scope(grant: RoleGrant) -> bool:
    return bool(grant.organisation_id or grant.team_id or grant.project_id)


class RoleBackend(BaseBackend):
    """Roles of the cluster as permissions for every row, and what everybody with a role holds of their own."""

    def has_perm(self, user_obj: Any, perm: str, obj: Any = None) -> bool:
        """Of a single row nothing is said: who holds a permission, holds it for all."""
        if obj is not None:
            return False
        return any(
            gives(Role(grant.role), perm, scoped=False) for grant in grants(user_obj) if not _of_scope(grant)
        ) or (perm in OWN and bool(grants(user_obj)))

    def has_module_perms(self, user_obj: Any, app_label: str) -> bool:
        return (app_label in APPS or app_label == "auth") and bool(grants(user_obj))

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> set[str]:
        if obj is not None or not grants(user_obj):
            return set()
        every = Permission.objects.values_list("content_type__app_label", "codename")
        return {name for app, code in every if self.has_perm(user_obj, name := f"{app}.{code}")}
