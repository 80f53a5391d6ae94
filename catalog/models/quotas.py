"""What parts of the tenancy tree are guaranteed of the fleet, and what they may have at most."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from catalog.models.fields import id_field
from catalog.models.scopes import Organisation, Project, Team


class Quota(models.Model):
    """Of one organisation, team or project. An amount: `{"cards": {class: number}, "cores": n, "memory": bytes}`, each
    part of it optional."""

    id = id_field("quota")
    organisation = models.OneToOneField(
        Organisation, null=True, blank=True, on_delete=models.CASCADE, related_name="quota"
    )
    team = models.OneToOneField(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="quota")
    project = models.OneToOneField(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="quota")
    guarantee = models.JSONField(default=dict, blank=True, help_text="What its models get in any case.")
    limit = models.JSONField(default=dict, blank=True, help_text="What its models may have at most.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(organisation__isnull=False, team__isnull=True, project__isnull=True)
                | Q(organisation__isnull=True, team__isnull=False, project__isnull=True)
                | Q(organisation__isnull=True, team__isnull=True, project__isnull=False),
                name="catalog_quota_of_one_scope",
                violation_error_message="A quota is of one organisation, one team or one project.",
            )
        ]

    def __str__(self) -> str:
        return str(self.scope)

    @property
    def scope(self) -> Organisation | Team | Project:
        found = self.organisation or self.team or self.project
        assert found is not None  # the constraint
        return found
