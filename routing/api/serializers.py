"""Shapes of usage and status in the admin API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from routing.models import UsageRecord


class UsageOut(serializers.ModelSerializer[UsageRecord]):
    class Meta:
        model = UsageRecord
        fields = [field.name for field in UsageRecord._meta.concrete_fields]
        read_only_fields = fields


class UsageSum(serializers.Serializer[Any]):
    """Requests and tokens of one value of the column that was asked for."""

    value = serializers.CharField()
    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    prompt_tokens = serializers.IntegerField(allow_null=True)
    completion_tokens = serializers.IntegerField(allow_null=True)


class UsageSummary(serializers.Serializer[Any]):
    by = serializers.CharField()
    results = UsageSum(many=True)


class ModelStatusOut(serializers.Serializer[Any]):
    model_id = serializers.CharField()
    name = serializers.CharField()
    enabled = serializers.BooleanField()
    wanted = serializers.IntegerField(help_text="Replicas that it should have now.")
    ready = serializers.IntegerField(help_text="Replicas that answer now.")
    code = serializers.CharField(help_text="Why it is short; empty if it is not.")
    reason = serializers.CharField()
    external = serializers.BooleanField(help_text="A provider answers for it: no replica is wanted.")
    in_flight = serializers.IntegerField(help_text="Requests that its engines work at now.")


class NodeCounts(serializers.Serializer[Any]):
    online = serializers.IntegerField()
    stale = serializers.IntegerField()
    offline = serializers.IntegerField()


class JobCounts(serializers.Serializer[Any]):
    queued = serializers.IntegerField()
    running = serializers.IntegerField()


class StatusOut(serializers.Serializer[Any]):
    """The cluster at one moment."""

    at = serializers.FloatField(help_text="Unix time of the database.")
    version = serializers.CharField(help_text="Of this llmgw.")
    snapshot = serializers.CharField(help_text="Version of the snapshot that nodes should hold.")
    nodes = NodeCounts()
    node_versions = serializers.ListField(child=serializers.CharField())
    models = ModelStatusOut(many=True)
    short = serializers.ListField(child=serializers.CharField(), help_text="Names of models that lack replicas.")
    jobs = JobCounts()
    requests_now = serializers.IntegerField()
