# The seconds in which a request's place was looked for.

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("routing", "0006_alias_target")]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="schedule_s",
            field=models.FloatField(
                blank=True, help_text="Of queue_s, the seconds in which its place was looked for.", null=True
            ),
        ),
    ]
