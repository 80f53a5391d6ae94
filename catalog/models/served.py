"""The models that can be asked for."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from catalog.models.fields import id_field
from catalog.models.scopes import Project

MODEL_NAME = r"\A[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z"
MAX_REPLICAS = 10_000


class Model(models.Model):
    """A model of the catalogue: its weights, and how many copies of it shall run. How, its profiles say."""

    id = id_field("mod")
    name = models.CharField(
        max_length=128,
        unique=True,
        help_text="What clients put into `model`.",
        validators=[
            RegexValidator(
                MODEL_NAME,
                "A name begins with a letter or digit and has at most 128 of A-Z a-z 0-9 . _ : / @ -",
                "name",
            )
        ],
    )
    description = models.TextField(blank=True, max_length=4000)
    enabled = models.BooleanField(default=True, help_text="Off: requests are refused, running ones finish.")
    replicas = models.PositiveIntegerField(
        default=1, validators=[MaxValueValidator(MAX_REPLICAS)], help_text="Copies that shall run."
    )
    weights_path = models.CharField(max_length=1024, blank=True, help_text="File on the nodes that run it.")
    weights_size = models.PositiveBigIntegerField(null=True, blank=True, help_text="Bytes; empty: not known.")
    weights_sha256 = models.CharField(
        "SHA-256 of the weights",
        max_length=64,
        blank=True,
        validators=[RegexValidator(r"\A[0-9a-f]{64}\Z", "A SHA-256 is 64 lower-case hex digits.", "sha256")],
    )
    facts = models.JSONField(
        default=dict,
        blank=True,
        editable=False,
        help_text="What its file says of itself.",
    )
    embeddings = models.BooleanField(default=False, help_text="Answers /v1/embeddings instead of chats.")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.PROTECT, related_name="models", help_text="Its owner."
    )
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(
                condition=Q(name__regex=MODEL_NAME),
                name="catalog_model_name_form",
                violation_error_message="A model's name begins with a letter or digit.",
            ),
            models.CheckConstraint(condition=Q(replicas__lte=MAX_REPLICAS), name="catalog_model_replicas_bounded"),
        ]

    def __str__(self) -> str:
        return self.name
