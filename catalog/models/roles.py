"""Who has which role, of the cluster or of a scope."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from catalog.choices import ROLES
from catalog.models.fields import SCOPES, held_by, id_field, of_one
from catalog.models.scopes import Organisation, Project, Team

_NONE = Q(organisation__isnull=True, team__isnull=True, project__isnull=True)


class RoleGrant(models.Model):
    """One role of one user: of an organisation, a team or a project, or, where none is named, of the whole cluster."""

    id = id_field("role")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="role_grants")
    role = models.CharField(max_length=16, choices=ROLES)
    organisation = models.ForeignKey(
        Organisation, null=True, blank=True, on_delete=models.CASCADE, related_name="role_grants"
    )
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="role_grants")
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="role_grants")
    source = models.CharField(
        max_length=16,
        blank=True,
        default="",
        editable=False,
        help_text="`oidc`: follows the user's claims; else given here.",
    )
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name = "role"
        ordering = ["user__username", "id"]
        constraints = [
            models.CheckConstraint(
                condition=of_one(SCOPES, or_none=True),
                name="catalog_role_of_one_scope",
                violation_error_message="A role is of the cluster, or of one organisation, one team or one project.",
            ),
            *(
                models.UniqueConstraint(
                    fields=["user", scope],
                    condition=Q(**{f"{scope}__isnull": False}),
                    name=f"catalog_role_once_per_{scope}",
                    violation_error_code="name_taken",
                    violation_error_message=f"This user has a role of this {scope}: take it first.",
                )
                for scope in SCOPES
            ),
            models.UniqueConstraint(
                fields=["user"],
                condition=_NONE,
                name="catalog_role_once_per_cluster",
                violation_error_code="name_taken",
                violation_error_message="This user has a role of the cluster: take it first.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} of {self.scope_name}"

    @property
    def scope(self) -> Organisation | Team | Project | None:
        """None: the cluster."""
        found: Organisation | Team | Project | None = held_by(self, SCOPES)
        return found

    @property
    def scope_name(self) -> str:
        scope = self.scope
        return "the cluster" if scope is None else f"{scope._meta.model_name}:{scope.name}"
