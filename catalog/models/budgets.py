"""What a key, or the keys of a scope together, may cost in a day or a month."""

from __future__ import annotations

from decimal import Decimal
from zoneinfo import ZoneInfo, available_timezones

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

from catalog.domain.budgets import Period, Standing
from catalog.models.fields import HOLDERS, held_by, id_field, of_one
from catalog.models.keys import ApiKey
from catalog.models.scopes import Organisation, Project, Team

PERIODS = [(item.value, item.value) for item in Period]
STANDINGS = [(item.value, item.value) for item in Standing]
MOST = 1_000_000_000
"""Of a budget, in units of the currency."""
MICRO = 1_000_000


def known_zone(name: str) -> None:
    """Raises ValidationError for what is no time zone of the IANA database."""
    if name not in available_timezones():
        raise ValidationError(f"There is no time zone {name[:64]!r}: write one such as Europe/Berlin.", code="zone")


class Budget(models.Model):
    """Of one organisation, team, project or key: at most one for its days and one for its months.

    `standing`, `spent`, `since`: as they were told last (routing.services.look_at_budgets); what is spent now is a sum of usage.
    """

    id = id_field("bud")
    organisation = models.ForeignKey(
        Organisation, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets"
    )
    team = models.ForeignKey(Team, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    project = models.ForeignKey(Project, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    key = models.ForeignKey(ApiKey, null=True, blank=True, on_delete=models.CASCADE, related_name="budgets")
    period = models.CharField(max_length=8, choices=PERIODS)
    amount = models.DecimalField(
        max_digits=16,
        decimal_places=6,
        validators=[MinValueValidator(0), MaxValueValidator(MOST)],
        help_text="For each period, in LLMGW_CURRENCY.",
    )
    zone = models.CharField(
        "time zone",
        max_length=64,
        default="UTC",
        validators=[known_zone],
        help_text="Whose midnight, or first of the month, it begins anew at.",
    )
    hard = models.BooleanField(default=True, help_text="Once it is spent, requests that cost something are refused.")
    warn_at = models.FloatField(
        null=True,
        blank=True,
        default=0.8,
        validators=[MinValueValidator(0.0), MaxValueValidator(1.0)],
        help_text="Share that is spent when it is told first; empty: never.",
    )
    standing = models.CharField(max_length=8, choices=STANDINGS, default=Standing.OK.value, editable=False)
    spent = models.PositiveBigIntegerField(default=0, editable=False, help_text="In millionths of the currency.")
    since = models.DateTimeField(null=True, blank=True, editable=False, help_text="Begin of the period that is of.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=of_one(HOLDERS),
                name="catalog_budget_of_one",
                violation_error_message="A budget is of one organisation, one team, one project or one key.",
            ),
            *(
                models.UniqueConstraint(fields=[column, "period"], name=f"catalog_budget_once_{column}")
                for column in HOLDERS
            ),
        ]

    def __str__(self) -> str:
        return f"{self.of} a {self.period}"

    @property
    def name(self) -> str:
        return str(self.of.name)

    @property
    def of(self) -> Organisation | Team | Project | ApiKey:
        found: Organisation | Team | Project | ApiKey = held_by(self, HOLDERS)
        return found

    @property
    def of_id(self) -> str:
        return str(self.organisation_id or self.team_id or self.project_id or self.key_id)

    @property
    def micro(self) -> int:
        """Its amount in millionths."""
        return int(Decimal(self.amount) * MICRO)

    @property
    def tz(self) -> ZoneInfo:
        return ZoneInfo(self.zone)
