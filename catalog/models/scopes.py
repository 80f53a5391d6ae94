"""The tenancy tree: organisations hold teams, teams hold projects, projects hold keys."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from catalog.choices import USUAL_CLASS
from catalog.models.fields import allowlist_field, class_field, class_known, id_field, label_field

MODELS_HELP = (
    "Names of the models and adapters that keys below it may use; empty: all. Each scope above may allow less."
)
CLASS_HELP = (
    "Where requests wait for room, those of a higher class go first. Empty: as the scope above it; at the top standard."
)


class Organisation(models.Model):
    """A customer, a company, or the whole of a private cluster."""

    id = id_field("org")
    name = label_field(unique=True)
    allowed_models = allowlist_field(MODELS_HELP)
    priority_class = class_field(CLASS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]
        constraints = [class_known("catalog_organisation_class_known")]

    def __str__(self) -> str:
        return self.name

    @property
    def effective_class(self) -> str:
        return self.priority_class or USUAL_CLASS


class Team(models.Model):
    """People of one organisation who work together."""

    ABOVE: ClassVar = ("organisation__name",)
    id = id_field("team")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="teams")
    name = label_field()
    allowed_models = allowlist_field(MODELS_HELP)
    priority_class = class_field(CLASS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["organisation__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "name"],
                name="catalog_team_name_once",
                violation_error_code="name_taken",
                violation_error_message="This organisation has a team of that name.",
            ),
            class_known("catalog_team_class_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def effective_class(self) -> str:
        return self.priority_class or self.organisation.effective_class


class Project(models.Model):
    """What keys are issued for, and usage is counted for."""

    ABOVE: ClassVar = ("team__name", "team__organisation__name")
    id = id_field("proj")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="projects")
    name = label_field()
    allowed_models = allowlist_field(MODELS_HELP)
    priority_class = class_field(CLASS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["team__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "name"],
                name="catalog_project_name_once",
                violation_error_code="name_taken",
                violation_error_message="This team has a project of that name.",
            ),
            class_known("catalog_project_class_known"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def effective_class(self) -> str:
        return self.priority_class or self.team.effective_class
