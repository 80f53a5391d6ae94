"""What parts of the tenancy tree are guaranteed of the fleet, and what they may have at most."""

from __future__ import annotations

from django.db import models

from catalog.models.fields import SCOPES, held_by, id_field, of_one
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
                condition=of_one(SCOPES),
                name="catalog_quota_of_one_scope",
                violation_error_message="A quota is of one organisation, one team or one project.",
            )
        ]

    def __str__(self) -> str:
        return str(self.of)

    @property
    def of(self) -> Organisation | Team | Project:
        found: Organisation | Team | Project = held_by(self, SCOPES)
        return found
