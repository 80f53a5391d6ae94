"""Weights that the cluster fetches, keeps and gives to its nodes."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from catalog.domain.repository import Format
from catalog.models.fields import id_field

FORMATS = [(item.value, item.value) for item in Format]


class Version(models.Model):
    """The files of one model at one commit of a repository, or at plain addresses (`registry` empty). Never changed.

    While its row exists, nodes with the module `data` fetch it and keep it.
    """

    id = id_field("ver")
    digest = models.CharField(max_length=64, unique=True, editable=False, help_text="Names its files and their origin.")
    registry = models.CharField(max_length=500, blank=True, help_text="Its address; empty: plain addresses.")
    repository = models.CharField(max_length=200, blank=True)
    commit = models.CharField(max_length=40, blank=True)
    format = models.CharField(max_length=16, choices=FORMATS)
    quantization = models.CharField(max_length=40, blank=True)
    size = models.PositiveBigIntegerField(help_text="Bytes of all its files.")
    facts = models.JSONField(default=dict, blank=True, help_text="What its files say of the model.")
    manifest = models.JSONField(help_text="Its files, sizes and checksums: catalog.domain.manifests.")
    first = models.CharField(max_length=500, blank=True, help_text="File that an engine is given; empty: the folder.")
    projector = models.CharField(max_length=500, blank=True, help_text="File that lets it see or hear; empty: none.")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-created_at", "id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(registry="", commit="") | ~Q(registry="") & ~Q(repository="") & ~Q(commit=""),
                name="catalog_version_of_a_commit",
                violation_error_message="A version of a registry has a repository and a commit.",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """For people: where it is from, which commit, which quantisation."""
        words = [self.repository or self.first or self.id, self.commit[:8], self.quantization]
        return " ".join(word for word in words if word)
