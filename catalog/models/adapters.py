"""LoRA adapters of models."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from catalog.domain.adapters import LEAST_SCALE, MOST_SCALE
from catalog.models.fields import id_field
from catalog.models.names import MODEL_NAME, check_free, name_field
from catalog.models.served import Model
from catalog.models.versions import Version


class Adapter(models.Model):
    """A small change of a model, asked for by a name of its own and answered by the model's replicas.

    Its file is one that an operator put on every node that runs the model (`path`), or a version that the cluster fetches. Changed only
    by an update and its way back (`previous`): another file or scale is another adapter. What stands from `checked_at` on is what its
    origin had at the last look.
    """

    shares_names = True
    """With models and aliases."""
    id = id_field("ada")
    name = name_field("What clients put into `model`; no model has it.")
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="adapters")
    version = models.ForeignKey(
        Version,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="adapters",
        help_text="Empty: a file on the nodes.",
    )
    path = models.CharField(
        max_length=1024, blank=True, help_text="File, or folder for vLLM, on the nodes that run the model."
    )
    size = models.PositiveBigIntegerField(help_text="Bytes.")
    scale = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(LEAST_SCALE), MaxValueValidator(MOST_SCALE)],
        help_text="How strongly it applies; 1: as it was trained.",
    )
    facts = models.JSONField(default=dict, blank=True, editable=False, help_text="What its file says of itself.")
    created_at = models.DateTimeField(auto_now_add=True)
    previous = models.ForeignKey(
        Version,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="former_adapters",
        help_text="What it was before its last update.",
    )
    former_path = models.CharField(
        max_length=1024,
        blank=True,
        editable=False,
        help_text="File on the nodes that it was before its last update: replicas that have loaded it go on answering.",
    )
    former_facts = models.JSONField(
        default=dict, blank=True, editable=False, help_text="What that file said of itself."
    )
    checked_at = models.DateTimeField(null=True, blank=True, editable=False)
    newest = models.CharField(max_length=40, blank=True, editable=False, help_text="Commit at the last look.")
    changed = models.JSONField(default=list, blank=True, editable=False, help_text="Files that were others then.")
    code = models.CharField(max_length=64, blank=True, editable=False, help_text="Why the last look failed.")
    message = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ["name"]
        constraints = [
            models.CheckConstraint(condition=Q(name__regex=MODEL_NAME), name="catalog_adapter_name_form"),
            models.CheckConstraint(
                condition=Q(version__isnull=True) & ~Q(path="") | Q(version__isnull=False, path=""),
                name="catalog_adapter_path_or_version",
                violation_error_message="An adapter has a path on the nodes, or a version that they fetch.",
            ),
            models.CheckConstraint(
                condition=Q(scale__gte=LEAST_SCALE, scale__lte=MOST_SCALE), name="catalog_adapter_scale_bounded"
            ),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        check_free(self, self.name)
