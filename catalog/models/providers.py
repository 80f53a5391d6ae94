"""External providers of the OpenAI API."""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from catalog.domain.providers import KEY_FILE, URL
from catalog.models.fields import id_field, label_field


class Provider(models.Model):
    """Where external models are answered. Its key is sealed under LLMGW_SECRET_KEY; nobody is ever shown it again."""

    id = id_field("prov")
    name = label_field("For people; clients never see it.", unique=True)
    url = models.CharField(
        "URL",
        max_length=500,
        help_text="Base of its OpenAI API, such as https://api.example.com/v1.",
        validators=[RegexValidator(URL, "A base URL is needed, such as https://api.example.com/v1.", "url")],
    )
    sealed_key = models.TextField(blank=True, editable=False)
    key_digest = models.CharField(
        max_length=64, blank=True, editable=False, help_text="Names the key that is set, tells nothing of it."
    )
    api_key_file = models.CharField(
        "API key file",
        max_length=1024,
        blank=True,
        help_text="File with the key on the nodes that run the cloud module, read afresh for each use.",
        validators=[RegexValidator(KEY_FILE, "An absolute path without `..` is needed.", "api_key_file")],
    )
    enabled = models.BooleanField(default=True, help_text="Off: its models are refused.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(url__regex=URL), name="catalog_provider_url_form"),
            models.CheckConstraint(
                condition=Q(sealed_key="") | Q(api_key_file=""),
                name="catalog_provider_one_key",
                violation_error_message="A provider has a key or a key file, not both: clear the key first.",
            ),
            models.CheckConstraint(
                condition=Q(sealed_key="", key_digest="") | (~Q(sealed_key="") & ~Q(key_digest="")),
                name="catalog_provider_key_has_digest",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def key_set(self) -> bool:
        """Whether a key is kept for it."""
        return bool(self.sealed_key)
