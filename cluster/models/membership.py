"""What joining takes: tokens, certificates, and the module map that nodes hold."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import F, Q

from cluster.models.nodes import Node
from llmgw_site.lib.clock import new_id


class JoinToken(models.Model):
    """Lets machines into the cluster. Its secret proves itself by HMAC and never travels, so it is kept, sealed."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "join"), editable=False)
    sealed_secret = models.TextField(help_text="AES-GCM under a key derived from LLMGW_SECRET_KEY.")
    uses_allowed = models.PositiveIntegerField(default=1)
    uses = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    created_by = models.CharField(max_length=200)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-created_at", "id"]
        constraints = [
            models.CheckConstraint(condition=Q(uses__lte=F("uses_allowed")), name="cluster_join_token_uses_bounded")
        ]

    def __str__(self) -> str:
        return self.id


class Certificate(models.Model):
    """A node's certificate, issued by the cluster's CA."""

    serial = models.CharField(primary_key=True, max_length=64, help_text="Hex.")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="certificates")
    issued_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-issued_at", "serial"]

    def __str__(self) -> str:
        return self.serial


class PublishedMap(models.Model):
    """The module map that nodes hold or will be told: one row. Version is `epoch:counter`."""

    ONLY = "map"

    id = models.CharField(primary_key=True, max_length=16, default=ONLY, editable=False)
    epoch = models.CharField(max_length=64)
    counter = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=64, help_text="Of address, modules, state, keys and revoked serials.")
    payload = models.TextField(help_text="cluster.domain.modules.ModuleMap as JSON.")
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id="map"), name="cluster_map_one_row")]

    def __str__(self) -> str:
        return self.version

    @property
    def version(self) -> str:
        return f"{self.epoch}:{self.counter}"
