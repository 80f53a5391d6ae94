"""How much of the endpoint a key, or the keys of a scope together, may use at a time and in a minute."""

from __future__ import annotations

from django.core.validators import MaxValueValidator
from django.db import models

from catalog.models.fields import HOLDERS, held_by, id_field, of_one
from catalog.models.keys import ApiKey
from catalog.models.scopes import Organisation, Project, Team

MOST = (1 << 53) - 1
"""What every JSON reader can hold."""


def _figure(help_text: str) -> models.PositiveBigIntegerField[int | None, int | None]:
    return models.PositiveBigIntegerField(
        null=True,
        blank=True,
        default=None,
        validators=[MaxValueValidator(MOST)],
        help_text=f"{help_text} Empty: no limit.",
    )


class Limit(models.Model):
    """Of one organisation, team, project or key. What is counted against it is in no table: the gateways do (docs/limits.md)."""

    id = id_field("limit")
    organisation = models.OneToOneField(
        Organisation, null=True, blank=True, on_delete=models.CASCADE, related_name="limit"
    )
    team = models.OneToOneField(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="limit")
    project = models.OneToOneField(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="limit")
    key = models.OneToOneField(ApiKey, null=True, blank=True, on_delete=models.CASCADE, related_name="limit")
    requests_per_minute = _figure("Requests that are let in within a minute.")
    tokens_per_minute = _figure("Tokens of requests and answers together within a minute.")
    parallel = _figure("Requests at a time.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=of_one(HOLDERS),
                name="catalog_limit_of_one",
                violation_error_message="A limit is of one organisation, one team, one project or one key.",
            )
        ]

    def __str__(self) -> str:
        return str(self.of)

    @property
    def of(self) -> Organisation | Team | Project | ApiKey:
        found: Organisation | Team | Project | ApiKey = held_by(self, HOLDERS)
        return found
