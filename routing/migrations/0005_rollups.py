"""Sums of usage records by day, and of what was spent by quarter of an hour; those of records that are there are made here."""

from datetime import UTC

from django.db import migrations, models
from django.db.models import Count, Q, Sum
from django.db.models.functions import Coalesce, TruncDate

TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


def fill(apps, schema_editor):
    """A request that reached no model counts under none."""
    records = apps.get_model("routing", "UsageRecord").objects.order_by()
    days = apps.get_model("routing", "UsageDay")
    columns = ("day", "key_id", "project_id", "model_asked", "model_served")
    for served, asked in ((~Q(model_served=""), models.F("model_asked")), (Q(model_served=""), models.Value(""))):
        rows = (
            records.filter(served)
            .annotate(day=TruncDate("started_at", tzinfo=UTC), asked=asked)
            .values("day", "key_id", "project_id", "asked", "model_served")
            .annotate(
                requests=Count("record_id"),
                failed=Count("record_id", filter=Q(outcome="failed")),
                refused=Count("record_id", filter=Q(outcome="refused")),
                of_estimated=Count("record_id", filter=Q(estimated=True)),
                **{f"of_{name}": Coalesce(Sum(name), 0) for name in TOKENS},
            )
        )
        for row in rows.iterator():
            sums = {name: row[f"of_{name}"] for name in ("estimated", *TOKENS)}
            sums |= {name: row[name] for name in ("requests", "failed", "refused")}
            key = {name: row["asked" if name == "model_asked" else name] for name in columns}
            days.objects.create(**key, **sums)


def count(**options):
    return models.PositiveBigIntegerField(default=0, db_default=0, **options)


class Migration(migrations.Migration):
    dependencies = [("routing", "0004_costs")]

    operations = [
        migrations.CreateModel(
            name="UsageDay",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(help_text="Of UTC.")),
                ("key_id", models.CharField(blank=True, max_length=40)),
                ("project_id", models.CharField(blank=True, max_length=40)),
                ("model_asked", models.CharField(blank=True, max_length=200)),
                ("model_served", models.CharField(blank=True, max_length=200)),
                ("requests", count()),
                ("failed", count()),
                ("refused", count()),
                ("estimated", count()),
                ("prompt_tokens", count()),
                ("completion_tokens", count()),
                ("cached_tokens", count()),
                ("reasoning_tokens", count()),
                ("cost", count(help_text="In millionths of the cluster's currency.")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("day", "key_id", "project_id", "model_asked", "model_served"), name="routing_day_once"
                    )
                ],
                "indexes": [models.Index(fields=["project_id", "day"], name="routing_day_project")],
            },
        ),
        migrations.CreateModel(
            name="UsageQuarter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("start", models.DateTimeField()),
                ("key_id", models.CharField(blank=True, max_length=40)),
                ("project_id", models.CharField(blank=True, max_length=40)),
                ("cost", count(help_text="In millionths of the cluster's currency.")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("start", "key_id", "project_id"), name="routing_quarter_once")
                ],
                "indexes": [
                    models.Index(fields=["project_id", "start"], name="routing_quarter_project"),
                    models.Index(fields=["key_id", "start"], name="routing_quarter_key"),
                ],
            },
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
