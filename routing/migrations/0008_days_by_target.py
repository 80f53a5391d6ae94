# Sums of a day also by what an alias stood for; those of before this say nothing of it.

from django.db import migrations, models

KEYS = ("day", "key_id", "project_id", "model_asked", "model_served")
SUMS = (
    "requests", "failed", "refused", "estimated", "prompt_tokens", "completion_tokens", "cached_tokens",
    "reasoning_tokens", "cost",
)  # fmt: skip


def fold(apps, schema_editor):
    """Back: one row again of those that only this tells apart."""
    name = apps.get_model("routing", "UsageDay")._meta.db_table
    schema_editor.execute(
        f"INSERT INTO {name} ({', '.join(KEYS)}, alias_target, {', '.join(SUMS)}) "
        f"SELECT {', '.join(KEYS)}, '', {', '.join(f'SUM({sum_})' for sum_ in SUMS)} FROM {name} "
        f"WHERE alias_target <> '' GROUP BY {', '.join(KEYS)} "
        f"ON CONFLICT ({', '.join(KEYS)}, alias_target) DO UPDATE "
        f"SET {', '.join(f'{sum_} = {name}.{sum_} + excluded.{sum_}' for sum_ in SUMS)}"
    )
    schema_editor.execute(f"DELETE FROM {name} WHERE alias_target <> ''")


class Migration(migrations.Migration):
    dependencies = [("routing", "0007_schedule")]

    operations = [
        migrations.AddField(
            model_name="usageday",
            name="alias_target",
            field=models.CharField(
                blank=True, db_default="", default="", help_text="Where what was asked for is an alias.", max_length=200
            ),
        ),
        migrations.RemoveConstraint(model_name="usageday", name="routing_day_once"),
        migrations.AddConstraint(
            model_name="usageday",
            constraint=models.UniqueConstraint(fields=(*KEYS, "alias_target"), name="routing_day_once"),
        ),
        migrations.RunPython(migrations.RunPython.noop, fold),
    ]
