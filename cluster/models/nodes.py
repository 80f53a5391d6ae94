"""Machines of the cluster."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from llmgw_site.lib.clock import new_id


class Node(models.Model):
    """A machine that runs llmgw. Its state is computed from `last_seen_at` (cluster/domain/health.py)."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "node"), editable=False)
    name = models.CharField(max_length=100)
    address = models.CharField(max_length=300, blank=True, help_text="Base URL of its node listener.")
    public_key = models.CharField(max_length=64, unique=True, help_text="X25519, hex.")
    enrolled_at = models.DateTimeField(auto_now_add=True)
    removed_at = models.DateTimeField(null=True, blank=True, help_text="Its key has been worth nothing since then.")
    last_seen_at = models.DateTimeField(null=True, blank=True, help_text="Database time of its last heartbeat.")
    boot_id = models.CharField(max_length=64, blank=True)
    version = models.CharField(max_length=40, blank=True)
    hardware = models.JSONField(default=dict, blank=True)
    engines = models.JSONField(default=list, blank=True)
    problems = models.JSONField(default=list, blank=True)
    snapshot_version = models.CharField(max_length=100, blank=True)
    spool_records = models.PositiveIntegerField(null=True, blank=True)

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(removed_at__isnull=True), name="cluster_node_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name
