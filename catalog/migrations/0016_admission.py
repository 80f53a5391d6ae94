"""Models have a queue of their own and fallbacks; keys have a priority."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0015_budgets")]

    operations = [
        migrations.AddField(
            model_name="model",
            name="queue_length",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests that wait for room at a node, at most; empty: LLMGW_QUEUE_LENGTH; 0: none does.",
                null=True,
                validators=[django.core.validators.MaxValueValidator(100000)],
            ),
        ),
        migrations.AddField(
            model_name="model",
            name="queue_wait",
            field=models.FloatField(
                blank=True,
                help_text="Seconds that one waits, at most; empty: LLMGW_QUEUE_WAIT.",
                null=True,
                validators=[
                    django.core.validators.MinValueValidator(0.1),
                    django.core.validators.MaxValueValidator(86400.0),
                ],
            ),
        ),
        migrations.AddField(
            model_name="model",
            name="fallbacks",
            field=models.JSONField(
                blank=True,
                default=list,
                help_text="Names of models that answer instead while this one cannot, the first choice first.",
            ),
        ),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(queue_length__isnull=True) | models.Q(queue_length__lte=100000),
                name="catalog_model_queue_length_bounded",
            ),
        ),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(queue_wait__isnull=True) | models.Q(queue_wait__gte=0.1, queue_wait__lte=86400.0),
                name="catalog_model_queue_wait_bounded",
            ),
        ),
        migrations.AddField(
            model_name="apikey",
            name="priority",
            field=models.SmallIntegerField(
                default=0,
                help_text="-2 to 2: where requests wait for room, each step has four times the share of the one below.",
                validators=[
                    django.core.validators.MinValueValidator(-2),
                    django.core.validators.MaxValueValidator(2),
                ],
            ),
        ),
        migrations.AddConstraint(
            model_name="apikey",
            constraint=models.CheckConstraint(
                condition=models.Q(priority__gte=-2, priority__lte=2), name="catalog_key_priority_bounded"
            ),
        ),
    ]
