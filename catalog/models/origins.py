"""Where weights come from of which no repository is written down, and what lies there now."""

from __future__ import annotations

from django.db import models

from catalog.models.adapters import Adapter
from catalog.models.served import Model
from catalog.models.versions import Version


class Traced(models.Model):
    """What was found or named."""

    repository = models.CharField(max_length=200, blank=True)
    commit = models.CharField(max_length=40, blank=True)
    files = models.JSONField(default=list, blank=True, help_text="Its files there, as paths in the repository.")
    given_by = models.CharField(max_length=200, blank=True, help_text="Who named it; empty: it was traced.")
    checked_at = models.DateTimeField(null=True, blank=True)
    newest = models.CharField(max_length=40, blank=True, help_text="The commit that was there at the last look.")
    changed = models.JSONField(default=list, blank=True, help_text="Files that were others at the last look.")
    code = models.CharField(max_length=64, blank=True, help_text="Why the last look failed.")
    message = models.TextField(blank=True)
    traced_at = models.DateTimeField(null=True, blank=True, help_text="When it was looked for last.")
    trace_code = models.CharField(max_length=64, blank=True, help_text="Why it was not found; empty: it was.")
    trace_message = models.TextField(blank=True)

    class Meta:
        abstract = True

    @property
    def trace(self) -> str:
        """What came of looking for it: "" (nobody looked, or it is known otherwise), traced, not_found, ambiguous, failed."""
        if self.traced_at is None or self.given_by:
            return ""
        ends = {"origin_not_found": "not_found", "origin_ambiguous": "ambiguous"}
        return ends.get(self.trace_code, "failed") if self.trace_code else "traced" if self.repository else ""

    def __str__(self) -> str:
        return f"{self.repository} {self.commit[:8]}".strip() or str(self.pk)


class Origin(Traced):
    """Of a model, as far as its version does not tell; and what the registry had when it was asked last."""

    model = models.OneToOneField(Model, primary_key=True, on_delete=models.CASCADE, related_name="origin")


class VersionOrigin(Traced):
    """Of a version from plain addresses that no model serves."""

    version = models.OneToOneField(Version, primary_key=True, on_delete=models.CASCADE, related_name="origin")


class AdapterOrigin(Traced):
    """Of an adapter that is a file on nodes. What its repository had at the last look stands with the adapter."""

    adapter = models.OneToOneField(Adapter, primary_key=True, on_delete=models.CASCADE, related_name="origin")
