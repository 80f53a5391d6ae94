"""Keys of the OpenAI endpoint."""

from __future__ import annotations

from django.conf import settings
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models as db
from django.db.models import Q

from catalog.models.fields import id_field, label_field
from catalog.models.scopes import Project

LEAST_PRIORITY, MOST_PRIORITY = -2, 2


class ApiKey(db.Model):
    """A key by its hash; its text was shown once. A revoked key stays as a row, so that usage keeps its name.

    A key that was rotated has another text; the former one opens the same until its time is over.
    """

    id = id_field("key")
    project = db.ForeignKey(Project, on_delete=db.PROTECT, related_name="keys")
    name = label_field("What it is for. Free again once the key is revoked.")
    sha256 = db.CharField("SHA-256", max_length=64, unique=True, editable=False)
    prefix = db.CharField(max_length=20, editable=False, help_text="Its first characters; safe to show.")
    models = db.JSONField(
        "models", null=True, blank=True, default=None, help_text="Names of the models it may use; empty: all."
    )
    user = db.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=db.SET_NULL,
        related_name="api_keys",
        help_text="Whose key it is, if it is one person's: revoked when that person is put out. Empty: the project's.",
    )
    priority = db.SmallIntegerField(
        default=0,
        validators=[MinValueValidator(LEAST_PRIORITY), MaxValueValidator(MOST_PRIORITY)],
        help_text="-2 to 2: where requests wait for room, each step has four times the share of the one below.",
    )
    former_sha256 = db.CharField(
        "SHA-256 of the former text", max_length=64, null=True, unique=True, default=None, editable=False
    )
    former_prefix = db.CharField(
        max_length=20, blank=True, editable=False, help_text="First characters of the former text."
    )
    former_until = db.DateTimeField(
        null=True, blank=True, editable=False, help_text="The former text is refused from then on."
    )
    rotated_at = db.DateTimeField(null=True, blank=True, editable=False)
    created_by = db.CharField(max_length=200, editable=False)
    created_at = db.DateTimeField(auto_now_add=True)
    expires_at = db.DateTimeField(null=True, blank=True, help_text="Refused from then on; empty: never.")
    revoked_at = db.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = db.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"
        ordering = ["-created_at", "-id"]
        constraints = [
            db.UniqueConstraint(
                fields=["project", "name"],
                condition=Q(revoked_at__isnull=True),
                name="catalog_key_name_once",
                violation_error_code="name_taken",
                violation_error_message="This project has a key of that name: revoke it first, or choose another.",
            ),
            db.CheckConstraint(
                condition=Q(priority__gte=LEAST_PRIORITY, priority__lte=MOST_PRIORITY),
                name="catalog_key_priority_bounded",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
