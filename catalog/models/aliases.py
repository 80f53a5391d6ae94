"""Names that stand for one of several models."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from catalog.models.adapters import Adapter
from catalog.models.fields import id_field
from catalog.models.names import MODEL_NAME, check_free, name_field
from catalog.models.served import Model

MAX_WEIGHT = 1_000_000


class Alias(models.Model):
    """Asked for like a model, and answered by one of its targets, each for the share that its weight has of all."""

    shares_names = True
    """With models and adapters."""
    id = id_field("alias")
    name = name_field("What clients put into `model`; no model and no adapter has it.")
    description = models.TextField(blank=True, max_length=4000)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "aliases"
        constraints = [
            models.CheckConstraint(
                condition=Q(name__regex=MODEL_NAME),
                name="catalog_alias_name_form",
                violation_error_message="An alias begins with a letter or digit.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        check_free(self, self.name)


class AliasTarget(models.Model):
    """What an alias stands for, and how often. It is not removed while one does."""

    id = id_field("target")
    alias = models.ForeignKey(Alias, on_delete=models.CASCADE, related_name="targets")
    model = models.ForeignKey(Model, null=True, blank=True, on_delete=models.PROTECT, related_name="aliases")
    adapter = models.ForeignKey(Adapter, null=True, blank=True, on_delete=models.PROTECT, related_name="aliases")
    weight = models.PositiveIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(MAX_WEIGHT)],
        help_text="Of the sum of all weights the share of requests.",
    )

    class Meta:
        ordering = ["id"]
        verbose_name_plural = "aliases"  # what is told of whoever hangs on a model
        constraints = [
            models.CheckConstraint(
                condition=Q(model__isnull=True, adapter__isnull=False) | Q(model__isnull=False, adapter__isnull=True),
                name="catalog_alias_target_one",
                violation_error_message="A target is a model or an adapter.",
            ),
            models.CheckConstraint(
                condition=Q(weight__gte=1, weight__lte=MAX_WEIGHT), name="catalog_alias_weight_bounded"
            ),
            models.UniqueConstraint(fields=["alias", "model"], name="catalog_alias_model_once"),
            models.UniqueConstraint(fields=["alias", "adapter"], name="catalog_alias_adapter_once"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def of(self) -> Model | Adapter:
        found = self.model or self.adapter
        assert found is not None  # the constraint
        return found

    @property
    def name(self) -> str:
        return self.of.name
