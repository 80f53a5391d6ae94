"""The tenancy tree: organisations hold teams, teams hold projects, projects hold keys."""

from __future__ import annotations

from django.db import models

from catalog.models.fields import allowlist_field, id_field, label_field

MODELS_HELP = (
    "Names of the models and adapters that keys below it may use; empty: all. Each scope above may allow less."
)


class Organisation(models.Model):
    """A customer, a company, or the whole of a private cluster."""

    id = id_field("org")
    name = label_field(unique=True)
    allowed_models = allowlist_field(MODELS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Team(models.Model):
    """People of one organisation who work together."""

    id = id_field("team")
    organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT, related_name="teams")
    name = label_field()
    allowed_models = allowlist_field(MODELS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["organisation__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "name"],
                name="catalog_team_name_once",
                violation_error_code="name_taken",
                violation_error_message="This organisation has a team of that name.",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Project(models.Model):
    """What keys are issued for, and usage is counted for."""

    id = id_field("proj")
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="projects")
    name = label_field()
    allowed_models = allowlist_field(MODELS_HELP)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["team__name", "name"]
        constraints = [
            models.UniqueConstraint(
                fields=["team", "name"],
                name="catalog_project_name_once",
                violation_error_code="name_taken",
                violation_error_message="This team has a project of that name.",
            )
        ]

    def __str__(self) -> str:
        return self.name
