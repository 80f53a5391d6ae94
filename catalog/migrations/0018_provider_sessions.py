import functools

import django.db.models.deletion
from django.db import migrations, models

import llmgw_site.lib.clock


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0017_aliases"),
        ("sessions", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="LogoutToken",
            fields=[
                (
                    "id",
                    models.CharField(
                        default=functools.partial(llmgw_site.lib.clock.new_id, *("logout",)),
                        editable=False,
                        max_length=40,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("issuer", models.CharField(editable=False, max_length=500)),
                ("jti", models.CharField(editable=False, max_length=255)),
                ("created_at", models.DateTimeField(auto_now_add=True, db_index=True)),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("issuer", "jti"), name="catalog_logout_token_once")],
            },
        ),
        migrations.CreateModel(
            name="ProviderSession",
            fields=[
                (
                    "session",
                    models.OneToOneField(
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="provider_session",
                        serialize=False,
                        to="sessions.session",
                    ),
                ),
                (
                    "sid",
                    models.CharField(
                        blank=True,
                        db_index=True,
                        editable=False,
                        help_text="The provider's name for its own session; empty where it tells none.",
                        max_length=255,
                    ),
                ),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                (
                    "identity",
                    models.ForeignKey(
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="sessions",
                        to="catalog.identity",
                    ),
                ),
            ],
        ),
    ]
