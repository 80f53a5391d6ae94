"""Users who come from a provider of single sign-on."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from catalog.models.fields import id_field


class Identity(models.Model):
    """A person at a provider, and the user that this person is here. The subject is the provider's own name for the person, which
    never changes and is nobody else's; a user's name may."""

    id = id_field("ident")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identities")
    issuer = models.CharField(max_length=500)
    subject = models.CharField(max_length=255)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "identities"
        ordering = ["issuer", "subject"]
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="catalog_identity_once")]

    def __str__(self) -> str:
        return f"{self.subject} at {self.issuer}"
