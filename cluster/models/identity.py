"""The cluster itself: one row."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class ClusterIdentity(models.Model):
    """Epoch and key pair of the controllers, and since when they have listened without a gap."""

    ONLY = "cluster"

    id = models.CharField(primary_key=True, max_length=16, default=ONLY, editable=False)
    epoch = models.CharField(max_length=64, help_text="Names this store: a restored copy gets a new one.")
    public_key = models.CharField(max_length=64, help_text="X25519, hex.")
    sealed_private_key = models.TextField(help_text="AES-GCM under a key derived from LLMGW_SECRET_KEY.")
    ca_certificate = models.TextField(blank=True, help_text="PEM of the cluster's own CA.")
    sealed_ca_key = models.TextField(blank=True, help_text="Its key, sealed as the private key is.")
    created_at = models.DateTimeField(auto_now_add=True)
    listening_since = models.DateTimeField(
        null=True, help_text="Heartbeats have been processed from then to `listening_at` without a gap."
    )
    listening_at = models.DateTimeField(null=True, help_text="When a controller last was seen to process heartbeats.")

    class Meta:
        verbose_name = verbose_name_plural = "cluster identity"
        constraints = [models.CheckConstraint(condition=Q(id="cluster"), name="cluster_identity_one_row")]

    def __str__(self) -> str:
        return f"cluster {self.epoch}"
