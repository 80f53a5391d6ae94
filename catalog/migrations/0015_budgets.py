"""Budgets in money."""

import catalog.models.budgets
import django.core.validators
import django.db.models.deletion
import functools
import llmgw_site.lib.clock
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0014_identities"),
    ]

    operations = [
        migrations.CreateModel(
            name="Budget",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(llmgw_site.lib.clock.new_id, *("bud",), **{}),
                        editable=False,
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("period", models.CharField(choices=[("day", "day"), ("month", "month")], max_length=8)),
                (
                    "amount",
                    models.DecimalField(
                        decimal_places=6,
                        help_text="For each period, in LLMGW_CURRENCY.",
                        max_digits=16,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(1000000000),
                        ],
                    ),
                ),
                (
                    "zone",
                    models.CharField(
                        default="UTC",
                        help_text="Whose midnight, or first of the month, it begins anew at.",
                        max_length=64,
                        validators=[catalog.models.budgets.known_zone],
                        verbose_name="time zone",
                    ),
                ),
                (
                    "hard",
                    models.BooleanField(
                        default=True, help_text="Once it is spent, requests that cost something are refused."
                    ),
                ),
                (
                    "warn_at",
                    models.FloatField(
                        blank=True,
                        default=0.8,
                        help_text="Share that is spent when it is told first; empty: never.",
                        null=True,
                        validators=[
                            django.core.validators.MinValueValidator(0.0),
                            django.core.validators.MaxValueValidator(1.0),
                        ],
                    ),
                ),
                (
                    "standing",
                    models.CharField(
                        choices=[("ok", "ok"), ("warned", "warned"), ("spent", "spent")],
                        default="ok",
                        editable=False,
                        max_length=8,
                    ),
                ),
                (
                    "spent",
                    models.PositiveBigIntegerField(
                        default=0, editable=False, help_text="In millionths of the currency."
                    ),
                ),
                (
                    "since",
                    models.DateTimeField(
                        blank=True, editable=False, help_text="Begin of the period that is of.", null=True
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "key",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="budgets",
                        to="catalog.apikey",
                    ),
                ),
                (
                    "organisation",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="budgets",
                        to="catalog.organisation",
                    ),
                ),
                (
                    "project",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="budgets",
                        to="catalog.project",
                    ),
                ),
                (
                    "team",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="budgets",
                        to="catalog.team",
                    ),
                ),
            ],
            options={
                "ordering": ["id"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("key__isnull", True),
                                ("organisation__isnull", False),
                                ("project__isnull", True),
                                ("team__isnull", True),
                            ),
                            models.Q(
                                ("key__isnull", True),
                                ("organisation__isnull", True),
                                ("project__isnull", True),
                                ("team__isnull", False),
                            ),
                            models.Q(
                                ("key__isnull", True),
                                ("organisation__isnull", True),
                                ("project__isnull", False),
                                ("team__isnull", True),
                            ),
                            models.Q(
                                ("key__isnull", False),
                                ("organisation__isnull", True),
                                ("project__isnull", True),
                                ("team__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="catalog_budget_of_one",
                        violation_error_message="A budget is of one organisation, one team, one project or one key.",
                    ),
                    models.UniqueConstraint(fields=("organisation", "period"), name="catalog_budget_once_organisation"),
                    models.UniqueConstraint(fields=("team", "period"), name="catalog_budget_once_team"),
                    models.UniqueConstraint(fields=("project", "period"), name="catalog_budget_once_project"),
                    models.UniqueConstraint(fields=("key", "period"), name="catalog_budget_once_key"),
                ],
            },
        ),
    ]
