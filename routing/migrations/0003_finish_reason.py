"""Usage records say why an answer ended, and whether its client had left."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0002_key_prefix")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="finish_reason",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Why the engine ended the answer; empty: not known.",
                max_length=40,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="client_gone",
            field=models.BooleanField(
                db_default=False, default=False, help_text="Whether the client left before the end."
            ),
        ),
    ]
