"""Shapes of the cluster in the admin API. What comes in is strict: an unknown field is refused, not ignored."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from cluster.choices import NODE_STATES
from cluster.domain.maintenance import Maintenance
from cluster.domain.modules import ModuleState
from cluster.domain.setup import roles_of
from cluster.models import Job, JobStep, Node, Replica, ReplicaPart
from cluster.selectors import age_of, node_state_of, setup_node
from llmgw_site.lib.addresses import told


class Strict(serializers.Serializer[Any]):
    """Input."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            known = ", ".join(self.fields)
            problem = serializers.ErrorDetail(f"There is no such field; there are {known}.", code="unknown_field")
            raise serializers.ValidationError({str(unknown[0]): [problem]})
        return super().to_internal_value(data)


class NoFields(Strict):
    """Input of what takes none."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and data:
            problem = serializers.ErrorDetail("There is no such field: this takes none.", code="unknown_field")
            raise serializers.ValidationError({str(min(data)): [problem]})
        return super().to_internal_value(data)


class ModuleOut(serializers.Serializer[Any]):
    """A part of llmgw that runs on a node, was switched off there, or cannot run: then code and message say why."""

    name = serializers.CharField()
    state = serializers.ChoiceField(sorted(ModuleState))
    code = serializers.CharField()
    message = serializers.CharField()


class MaintenanceIn(Strict):
    reason = serializers.CharField(
        max_length=1000, required=False, allow_blank=True, default="", help_text="Shown wherever the node is."
    )
    card = serializers.CharField(
        max_length=100, required=False, allow_blank=True, default="", help_text="UUID of one card; left out: the node."
    )


class LabelsIn(Strict):
    labels = serializers.DictField(
        child=serializers.CharField(max_length=63, allow_blank=True, allow_null=True),
        help_text="Labels to give, name and value; null takes one away. Those that are not named stay.",
    )
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class FabricIn(Strict):
    fabric = serializers.CharField(max_length=64, allow_blank=True, help_text="Name of the network; empty: none.")
    address = serializers.CharField(
        max_length=64, allow_blank=True, allow_null=True, required=False, default=None,
        help_text="The node's IP address there; empty: that of its node listener; left out: as it is.",
    )  # fmt: skip
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class CardMaintenance(serializers.Serializer[Any]):
    state = serializers.ChoiceField(sorted(Maintenance))
    why = serializers.CharField()
    by = serializers.CharField()
    at = serializers.DateTimeField()


class Waiting(serializers.Serializer[Any]):
    """A replica that cannot leave a drained node or card yet; it serves on meanwhile."""

    replica = serializers.CharField()
    model = serializers.CharField()
    message = serializers.CharField()


class NodeOut(serializers.ModelSerializer[Node]):
    state = serializers.SerializerMethodField()
    replicas = serializers.IntegerField(source="replica_count", read_only=True)
    last_seen_age_s = serializers.SerializerMethodField()
    assigned_roles = serializers.SerializerMethodField()
    modules = ModuleOut(many=True, read_only=True)
    cards_maintenance = serializers.DictField(child=CardMaintenance(), read_only=True)
    labels = serializers.DictField(child=serializers.CharField(), read_only=True)
    waiting_to_move = serializers.SerializerMethodField()

    class Meta:
        model = Node
        fields = [
            "id", "name", "state", "address", "version", "enrolled_at", "last_seen_at", "hardware", "engines",
            "problems", "snapshot_version", "spool_records", "replicas", "last_seen_age_s", "modules", "roles",
            "assigned_roles", "maintenance", "maintenance_why", "maintenance_by", "maintenance_at", "cards_maintenance",
            "waiting_to_move", "labels", "fabric", "fabric_address",
        ]  # fmt: skip
        read_only_fields = fields

    @extend_schema_field(serializers.ChoiceField(NODE_STATES))
    def get_state(self, node: Node) -> str:
        """By its last heartbeat; see the documentation of node states."""
        return node_state_of(node, *self.context["clock"]).value

    def get_last_seen_age_s(self, node: Node) -> float | None:
        """Seconds since its last heartbeat; null if there was none."""
        return age_of(node, self.context["clock"][1])

    @extend_schema_field(serializers.ListField(child=serializers.CharField(), allow_null=True))
    def get_assigned_roles(self, node: Node) -> tuple[str, ...] | None:
        """By the cluster setup; null if it does not name this node, which then goes by its own roles."""
        return roles_of(self.context["setup"], setup_node(node))

    @extend_schema_field(Waiting(many=True))
    def get_waiting_to_move(self, node: Node) -> list[dict[str, str]]:
        """Replicas that are to leave and for which there is no place yet."""
        if not node.maintenance and not node.cards_maintenance:
            return []
        found: list[dict[str, str]] = self.context["moves"]().get(node.id, [])
        return found


class PartOut(serializers.ModelSerializer[ReplicaPart]):
    """Of a replica over several nodes, what one of them runs. Rank 0 leads, and answers clients."""

    node_name = serializers.CharField(source="node.name", read_only=True)

    class Meta:
        model = ReplicaPart
        fields = [
            "rank",
            "node",
            "node_name",
            "state",
            "state_since",
            "code",
            "message",
            "pid",
            "memory",
            "card_memory",
            "cpu",
        ]
        read_only_fields = fields


class ReplicaOut(serializers.ModelSerializer[Replica]):
    model_name = serializers.CharField(source="model.name", read_only=True)
    node_name = serializers.CharField(source="node.name", read_only=True)
    profile_name = serializers.CharField(source="profile.name", read_only=True, default=None, allow_null=True)
    parts = PartOut(many=True, read_only=True, help_text="Empty: it runs on one node.")

    class Meta:
        model = Replica
        fields = [
            "id", "model", "model_name", "profile", "profile_name", "node", "node_name", "slot", "generation", "run",
            "state", "state_since", "code", "message", "attempt", "why", "reserved", "memory", "cpu", "pid", "port",
            "context", "slots", "in_flight", "waiting", "started_at", "ready_at", "last_used_at", "created_at", "parts",
        ]  # fmt: skip
        read_only_fields = fields


class ReplicaDetail(ReplicaOut):
    class Meta(ReplicaOut.Meta):
        fields = [*ReplicaOut.Meta.fields, "serve", "log_tail"]
        read_only_fields = fields


class JobStepOut(serializers.ModelSerializer[JobStep]):
    class Meta:
        model = JobStep
        fields = ["number", "name", "title", "state", "progress", "detail", "data", "started_at", "finished_at"]
        read_only_fields = fields

    def to_representation(self, instance: JobStep) -> Any:
        return told(super().to_representation(instance))  # addresses may be signed


class JobOut(serializers.ModelSerializer[Job]):
    steps = JobStepOut(many=True, read_only=True)

    class Meta:
        model = Job
        fields = [
            "id", "kind", "subject", "args", "actor", "state", "attempt", "cancel_requested", "created_at",
            "started_at", "finished_at", "code", "message", "result", "steps",
        ]  # fmt: skip
        read_only_fields = fields

    def to_representation(self, instance: Job) -> Any:
        shown = super().to_representation(instance)
        return {**shown, "args": told(shown["args"])}  # addresses may be signed
