"""Usage records say which key they were made with, also when the key itself has been forgotten."""

from django.db import migrations, models
from django.db.models import OuterRef, Subquery
from django.db.models.functions import Coalesce


def fill(apps, schema_editor):  # type: ignore[no-untyped-def]
    keys = apps.get_model("catalog", "ApiKey").objects.filter(pk=OuterRef("key_id"))
    rows = apps.get_model("routing", "UsageRecord").objects.exclude(key_id="")
    rows.update(key_prefix=Coalesce(Subquery(keys.values("prefix")[:1]), models.Value("")))


class Migration(migrations.Migration):
    dependencies = [
        ("routing", "0001_usage_and_snapshot"),
        ("catalog", "0001_catalogue"),
    ]

    operations = [
        migrations.AddField(
            model_name="usagerecord",
            name="key_prefix",
            field=models.CharField(
                blank=True,
                db_default="",
                default="",
                help_text="First characters of its key; they stay when the key is forgotten.",
                max_length=20,
            ),
        ),
        migrations.RunPython(fill, migrations.RunPython.noop),
    ]
