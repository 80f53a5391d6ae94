"""Usage records say what a request cost, what of the answer was thought, and whose key it was."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0003_finish_reason")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="reasoning_tokens",
            field=models.PositiveBigIntegerField(
                blank=True, help_text="Of the completion, those that were thought and not said.", null=True
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="user",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="Id of the user whose key it was; empty: the project's.",
                max_length=40,
            ),
        ),
        migrations.AddField(
            model_name="usagerecord",
            name="cost",
            field=models.PositiveBigIntegerField(
                blank=True, help_text="In millionths of the cluster's currency; empty: not known.", null=True
            ),
        ),
    ]
