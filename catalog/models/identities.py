"""Users who come from a provider of single sign-on, and the sessions that they have of it."""

from __future__ import annotations

from django.conf import settings
from django.contrib.sessions.models import Session
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


class ProviderSession(models.Model):
    """A session of the console that began at a provider. It goes with the session, however that ends."""

    session = models.OneToOneField(
        Session, primary_key=True, on_delete=models.CASCADE, related_name="provider_session", editable=False
    )
    identity = models.ForeignKey(Identity, on_delete=models.CASCADE, related_name="sessions", editable=False)
    sid = models.CharField(
        max_length=255,
        blank=True,
        db_index=True,
        editable=False,
        help_text="The provider's name for its own session; empty where it tells none.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"session of {self.identity}"


class LogoutToken(models.Model):
    """A logout token that was taken: it counts once. Kept for longer than one can be good."""

    id = id_field("logout")
    issuer = models.CharField(max_length=500, editable=False)
    jti = models.CharField(max_length=255, editable=False)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["issuer", "jti"], name="catalog_logout_token_once")]

    def __str__(self) -> str:
        return f"{self.jti} of {self.issuer}"
