"""Copies of models on nodes. The constraints make a double placement impossible even for a wrong planner."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from catalog.models import Model, Profile
from cluster.choices import REPLICA_STATES
from cluster.domain.states import ReplicaState
from cluster.models.nodes import Node
from cluster.wire import WantedReplica
from llmgw_site.lib.clock import new_id


class Replica(models.Model):
    """One wanted or running copy. Wanted: written by `services/apply.py`. Observed: by `services/nodes.py` only, of one over
    several nodes by `services/parts.py`."""

    told: WantedReplica | None = (
        None  # no column: of one over several nodes, what the node that was heard is told of its part
    )

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "rep"), editable=False)
    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="placed")
    profile = models.ForeignKey(Profile, on_delete=models.SET_NULL, null=True, blank=True, related_name="placed")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="replicas")
    slot = models.PositiveIntegerField(help_text="Place among the model's replicas; a live one has its own.")
    created_at = models.DateTimeField(auto_now_add=True)
    # wanted
    run = models.BooleanField(default=True, help_text="Wanted running; else drained, stopped, then removed.")
    generation = models.PositiveIntegerField(default=1, help_text="Rises when it has to start anew.")
    serve = models.JSONField(help_text="The profile, resolved: what the node is told (cluster.wire.Serve).")
    digest = models.CharField(max_length=64, help_text="Of `serve`: differs from the catalogue's when outdated.")
    reserved = models.PositiveBigIntegerField(default=0, help_text="Bytes of the node's memory held for it.")
    shares = models.JSONField(
        default=list,
        blank=True,
        help_text="What it holds of its node, and of others it spans: cluster.domain.types.Share.",
    )
    grown = models.BooleanField(default=False, help_text="Added under load, beyond what shall run.")
    grace = models.FloatField(
        null=True, blank=True, help_text="Seconds that it may drain at most, where its room is taken for another."
    )
    why = models.TextField(blank=True, help_text="Why it is here, and why it stops.")
    # observed
    state = models.CharField(max_length=16, choices=REPLICA_STATES, default=ReplicaState.PENDING.value)
    state_since = models.DateTimeField(auto_now_add=True)
    code = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    log_tail = models.TextField(blank=True)
    attempt = models.PositiveIntegerField(default=0)
    proven = models.PositiveIntegerField(default=0, help_text="The attempt that became ready last; 0: none has.")
    pid = models.PositiveBigIntegerField(null=True, blank=True)
    port = models.PositiveIntegerField(null=True, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    ready_at = models.DateTimeField(null=True, blank=True)
    context = models.PositiveIntegerField(null=True, blank=True)
    slots = models.PositiveIntegerField(null=True, blank=True)
    memory = models.PositiveBigIntegerField(null=True, blank=True)
    card_memory = models.PositiveBigIntegerField(null=True, blank=True, help_text="Bytes that it has of its cards.")
    cpu = models.FloatField(null=True, blank=True, help_text="Cores that it kept busy in the last seconds.")
    in_flight = models.PositiveIntegerField(default=0)
    waiting = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Requests of these in its engine's own queue, as the engine says; empty: it does not.",
    )
    wedged = models.PositiveIntegerField(
        default=0, db_default=0, help_text="Times in a row that its engine was ready and then gave no token."
    )
    last_used_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["model_id", "slot", "id"]
        constraints = [
            models.UniqueConstraint(
                fields=["model", "slot"],
                condition=~Q(state=ReplicaState.STOPPED.value),
                name="cluster_replica_one_per_slot",
            ),
            models.CheckConstraint(condition=Q(generation__gte=1), name="cluster_replica_generation_from_1"),
            models.CheckConstraint(
                condition=Q(state__in=[item.value for item in ReplicaState]), name="cluster_replica_state_known"
            ),
        ]

    def __str__(self) -> str:
        return self.id


class ReplicaPart(models.Model):
    """Of a replica over several nodes, what one of them has to do with it. Made by `services/apply.py`; observed: written by
    `services/parts.py` only."""

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="parts")
    node = models.ForeignKey(Node, on_delete=models.PROTECT, related_name="parts")
    rank = models.PositiveIntegerField(help_text="0: it leads, and answers clients.")
    address = models.CharField(max_length=64, help_text="IP address of its node on the fabric.")
    # observed
    generation = models.PositiveIntegerField(default=0, help_text="That its node last spoke of; 0: none yet.")
    state = models.CharField(max_length=16, choices=REPLICA_STATES, default=ReplicaState.PENDING.value)
    state_since = models.DateTimeField(auto_now_add=True)
    code = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    log_tail = models.TextField(blank=True)
    pid = models.PositiveBigIntegerField(null=True, blank=True)
    memory = models.PositiveBigIntegerField(null=True, blank=True)
    card_memory = models.PositiveBigIntegerField(null=True, blank=True)
    cpu = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["replica_id", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["replica", "rank"], name="cluster_replicapart_one_per_rank"),
            models.UniqueConstraint(fields=["replica", "node"], name="cluster_replicapart_one_per_node"),
        ]

    def __str__(self) -> str:
        return f"{self.replica_id}/{self.rank}"
