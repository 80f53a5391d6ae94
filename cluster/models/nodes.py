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
    modules = models.JSONField(default=list, blank=True, help_text="As last reported: cluster.domain.modules.")
    roles = models.JSONField(default=list, blank=True, help_text="Of its own settings, as last reported.")
    map_version = models.CharField(max_length=100, blank=True)
    call_counter = models.BigIntegerField(
        null=True, blank=True, help_text="Of its last heartbeat within `boot_id`: an older one is refused."
    )
    maintenance = models.CharField(
        max_length=16, blank=True, help_text="Empty, `cordoned` (nothing new) or `drained` (replicas move away too)."
    )
    maintenance_why = models.TextField(blank=True)
    maintenance_by = models.CharField(max_length=200, blank=True)
    maintenance_at = models.DateTimeField(null=True, blank=True)
    labels = models.JSONField(default=dict, blank=True, help_text="Set by administrators, name and value.")
    fabric = models.CharField(
        max_length=64, blank=True, help_text="Fast network over which it can share a replica with others of that name."
    )
    fabric_address = models.CharField(
        max_length=64, blank=True, help_text="Its IP address there; empty: that of its node listener."
    )
    cards_maintenance = models.JSONField(
        default=dict, blank=True, help_text="The same of single cards, by UUID: state, why, by, at."
    )

    weights = models.JSONField(
        default=list, blank=True, help_text="What lies there of the models' weights: cluster.wire.WeightsReport."
    )
    weights_mark = models.CharField(
        max_length=64, blank=True, help_text="The node's own name of `weights`; empty: it does not look."
    )

    fetches = models.JSONField(
        null=True,
        blank=True,
        help_text="Versions of weights that it is to have and has not yet: domain.fetching.Fetch; empty: it fetches none.",
    )

    class Meta:
        ordering = ["name", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(removed_at__isnull=True), name="cluster_node_name_once"
            )
        ]

    def __str__(self) -> str:
        return self.name
