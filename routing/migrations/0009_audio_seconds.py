# Seconds of sound that was heard, of records and of the sums of days.

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0008_days_by_target")]

    operations = [
        migrations.AddField(
            model_name="usageday",
            name="audio_seconds",
            field=models.PositiveBigIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="audio_seconds",
            field=models.PositiveBigIntegerField(
                blank=True,
                help_text="Of sound that was heard, where the engine counts by time; empty: not known.",
                null=True,
            ),
        ),
    ]
