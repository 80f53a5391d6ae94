"""A job may end as `waiting`: what it began goes on by itself once others make room."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models import Q

ENDED = ["cancelled", "done", "failed", "waiting"]


class Migration(migrations.Migration):
    dependencies = [("cluster", "0008_fetching")]

    operations = [
        migrations.RemoveConstraint(model_name="job", name="cluster_job_one_open_per_subject"),
        migrations.RemoveConstraint(model_name="job", name="cluster_job_end_has_a_time"),
        migrations.AlterField(
            model_name="job",
            name="state",
            field=models.CharField(
                choices=[(state, state) for state in ("queued", "running", "done", "failed", "cancelled", "waiting")],
                default="queued",
                max_length=16,
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=~Q(state__in=ENDED), fields=("kind", "subject"), name="cluster_job_one_open_per_subject"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=Q(state__in=ENDED, finished_at__isnull=False)
                | (~Q(state__in=ENDED) & Q(finished_at__isnull=True)),
                name="cluster_job_end_has_a_time",
            ),
        ),
    ]
