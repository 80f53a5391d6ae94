"""What engines say of themselves: requests in their own queue, and how often in a row one was ready and gave no token."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("cluster", "0011_parts_of_replicas")]

    operations = [
        migrations.AddField(
            model_name="replica",
            name="waiting",
            field=models.PositiveIntegerField(
                blank=True,
                help_text="Requests of these in its engine's own queue, as the engine says; empty: it does not.",
                null=True,
            ),
        ),
        migrations.AddField(
            model_name="replica",
            name="wedged",
            field=models.PositiveIntegerField(
                db_default=0,
                default=0,
                help_text="Times in a row that its engine was ready and then gave no token.",
            ),
        ),
    ]
