"""The models that can be asked for."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q

from catalog.models.fields import LABEL, id_field
from catalog.models.providers import Provider
from catalog.models.scopes import Project

MODEL_NAME = r"\A[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z"
MAX_REPLICAS = 10_000
MIN_TIMEOUT, MAX_TIMEOUT = 0.1, 86_400.0


class Model(models.Model):
    """A model of the catalogue: its weights, and how many copies of it shall run; how, its profiles say.

    An external one has a provider and the provider's name for it instead: no weights, no profiles, no copies.
    """

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
    provider = models.ForeignKey(
        Provider,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="models",
        help_text="Who answers for it; empty: engines of this cluster.",
    )
    provider_model = models.CharField(
        max_length=200,
        blank=True,
        help_text="The provider's own name for it.",
        validators=[RegexValidator(LABEL, "Up to 200 printable characters, no space at its ends.", "name")],
    )
    embeddings = models.BooleanField(default=False, help_text="Answers /v1/embeddings instead of chats.")
    first_byte_timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds until an answer must begin; empty: LLMGW_FIRST_BYTE_TIMEOUT.",
    )
    idle_timeout = models.FloatField(
        null=True,
        blank=True,
        validators=[MinValueValidator(MIN_TIMEOUT), MaxValueValidator(MAX_TIMEOUT)],
        help_text="Seconds that an answer may pause; empty: LLMGW_IDLE_TIMEOUT.",
    )
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
            models.CheckConstraint(
                condition=Q(provider__isnull=True, provider_model="") & ~Q(weights_path="")
                | Q(provider__isnull=False, weights_path="", weights_sha256="", weights_size__isnull=True, replicas=0)
                & ~Q(provider_model=""),
                name="catalog_model_weights_or_provider",
                violation_error_message="A model has weights, or a provider and the provider's name for it, not both.",
            ),
            models.CheckConstraint(
                condition=Q(first_byte_timeout__isnull=True)
                | Q(first_byte_timeout__gte=MIN_TIMEOUT, first_byte_timeout__lte=MAX_TIMEOUT),
                name="catalog_model_first_byte_timeout_bounded",
            ),
            models.CheckConstraint(
                condition=Q(idle_timeout__isnull=True)
                | Q(idle_timeout__gte=MIN_TIMEOUT, idle_timeout__lte=MAX_TIMEOUT),
                name="catalog_model_idle_timeout_bounded",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def external(self) -> bool:
        """Whether a provider answers for it."""
        return self.provider_id is not None
