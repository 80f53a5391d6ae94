"""Models have prices."""

import django.core.validators
from django.db import migrations, models


def price(help_text):
    return models.DecimalField(
        blank=True,
        decimal_places=6,
        help_text=help_text,
        max_digits=13,
        null=True,
        validators=[
            django.core.validators.MinValueValidator(0),
            django.core.validators.MaxValueValidator(1000000),
        ],
    )


class Migration(migrations.Migration):
    dependencies = [("catalog", "0012_limits")]

    operations = [
        migrations.AddField(
            model_name="model",
            name="price_input",
            field=price("Of a million tokens that are sent, in LLMGW_CURRENCY; empty: what it costs is not known."),
        ),
        migrations.AddField(
            model_name="model",
            name="price_cached",
            field=price("Of a million of them that come from the engine's cache; empty: as those that are sent."),
        ),
        migrations.AddField(
            model_name="model",
            name="price_output",
            field=price("Of a million tokens that it answers with; 0 for a model that answers with vectors."),
        ),
        migrations.AddConstraint(
            model_name="model",
            constraint=models.CheckConstraint(
                condition=models.Q(price_input__isnull=True, price_cached__isnull=True, price_output__isnull=True)
                | models.Q(price_input__isnull=False, price_output__isnull=False),
                name="catalog_model_price_whole",
                violation_error_message="A price has both sides, what is sent and what is answered: 0 is a price, too.",
            ),
        ),
    ]
