"""Shapes of usage and status in the admin API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from routing.models import UsageRecord


class Strict(serializers.Serializer[Any]):
    """Input in which a field that is not known is refused."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = sorted(set(data) - set(self.fields)) if isinstance(data, dict) else []
        if unknown:
            problem = serializers.ErrorDetail(
                f"There is no such field; there are {', '.join(self.fields)}.", code="unknown_field"
            )
            raise serializers.ValidationError({str(unknown[0]): [problem]})
        return super().to_internal_value(data)


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


class SpanOut(serializers.Serializer[Any]):
    """A part of a request's time, in seconds from its head."""

    name = serializers.CharField(
        help_text="`queue` until it was sent on, `first_token` until that came, `answer` until the end; `upstream` where no "
        "first token is known; `gateway` where it was sent to nobody."
    )
    start_s = serializers.FloatField()
    length_s = serializers.FloatField()


class RequestOut(serializers.Serializer[Any]):
    """One request: its record, what names the ids in it, its time in parts, its line of the access log."""

    record = UsageOut()
    key_name = serializers.CharField(help_text="Empty where the key is forgotten.")
    project_name = serializers.CharField(source="project.name")
    team_name = serializers.CharField(source="project.team_name")
    organisation_name = serializers.CharField(source="project.organisation_name")
    node_name = serializers.CharField()
    user_name = serializers.CharField(help_text="Empty where the key is the project's, or the user was removed.")
    currency = serializers.CharField(help_text="Of `record.cost`, which is in millionths of it.")
    spans = SpanOut(many=True)
    line = serializers.DictField(help_text="As the access log of the gateway has it.")
    others = serializers.ListField(
        child=serializers.CharField(), help_text="Ids of more records that have this request id: clients choose those."
    )


class ReportRow(serializers.Serializer[Any]):
    """Sums of one combination of what the report is by, which stands under its name; scopes and keys by id, with their name."""

    day = serializers.DateField(required=False)
    month = serializers.CharField(required=False, help_text="Such as 2026-01, of UTC.")
    key = serializers.CharField(required=False)
    key_name = serializers.CharField(required=False)
    model = serializers.CharField(required=False, help_text="As asked for; empty: the request reached none.")
    served = serializers.CharField(required=False)
    target = serializers.CharField(
        required=False, help_text="Model or adapter that an alias stood for; empty: none was asked for."
    )
    project = serializers.CharField(required=False)
    project_name = serializers.CharField(required=False)
    team = serializers.CharField(required=False)
    team_name = serializers.CharField(required=False)
    organisation = serializers.CharField(required=False)
    organisation_name = serializers.CharField(required=False)
    requests = serializers.IntegerField()
    failed = serializers.IntegerField()
    refused = serializers.IntegerField()
    estimated = serializers.IntegerField(help_text="Requests whose tokens were counted from what passed.")
    prompt_tokens = serializers.IntegerField()
    completion_tokens = serializers.IntegerField()
    cached_tokens = serializers.IntegerField()
    reasoning_tokens = serializers.IntegerField()
    audio_seconds = serializers.IntegerField(help_text="Of sound that was heard, where engines count by time.")
    cost = serializers.IntegerField(help_text="In millionths of `currency`; requests without a price add nothing.")


class ReportOut(serializers.Serializer[Any]):
    by = serializers.ListField(child=serializers.CharField())
    since = serializers.DateField()
    until = serializers.DateField(help_text="The day after the last one.")
    currency = serializers.CharField()
    results = ReportRow(many=True)
    total = ReportRow()


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


class NodeProblem(serializers.Serializer[Any]):
    node = serializers.CharField(help_text="Its name.")
    problem = serializers.CharField()


class StatusOut(serializers.Serializer[Any]):
    """The cluster at one moment."""

    at = serializers.FloatField(help_text="Unix time of the database.")
    version = serializers.CharField(help_text="Of this llmgw.")
    snapshot = serializers.CharField(help_text="Version of the snapshot that nodes should hold.")
    nodes = NodeCounts()
    node_versions = serializers.ListField(child=serializers.CharField())
    problems = NodeProblem(many=True, help_text="What nodes say that is wrong with them.")
    models = ModelStatusOut(many=True)
    short = serializers.ListField(child=serializers.CharField(), help_text="Names of models that lack replicas.")
    jobs = JobCounts()
    requests_now = serializers.IntegerField()
