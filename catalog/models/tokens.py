"""Tokens of the admin API."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from catalog.models.fields import id_field, label_field


class AdminToken(models.Model):
    """Acts as its user, with the user's permissions, until it expires. Kept by its hash only."""

    id = id_field("tok")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="admin_tokens")
    name = label_field("What it is for. Free again once the token is revoked.")
    sha256 = models.CharField("SHA-256", max_length=64, unique=True, editable=False)
    prefix = models.CharField(max_length=20, editable=False, help_text="Its first characters; safe to show.")
    created_by = models.CharField(max_length=200, editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "admin token"
        ordering = ["-created_at", "-id"]
        permissions = [("manage_all_tokens", "Can see, issue and revoke everybody's admin tokens")]
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"],
                condition=Q(revoked_at__isnull=True),
                name="catalog_token_name_once",
                violation_error_code="name_taken",
                violation_error_message="This user has a token of that name: revoke it first, or choose another.",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"
