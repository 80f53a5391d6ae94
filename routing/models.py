"""Usage records, and the snapshot that nodes work from. Ids, not foreign keys: a record outlives what it names."""

from __future__ import annotations

from django.db import models
from django.db.models import Q

from routing.choices import OUTCOMES


class UsageRecord(models.Model):
    """One request to the OpenAI endpoint; see routing/domain/records.py. Written once, never changed."""

    record_id = models.CharField(primary_key=True, max_length=64)
    request_id = models.CharField(max_length=200)
    started_at = models.DateTimeField()
    stored_at = models.DateTimeField(auto_now_add=True)
    reported_by = models.CharField(max_length=40, help_text="Id of the node whose gateway wrote it.")
    endpoint = models.CharField(max_length=40)
    stream = models.BooleanField(default=False)
    key_id = models.CharField(max_length=40, blank=True)
    key_prefix = models.CharField(
        max_length=20,
        blank=True,
        default="",
        db_default="",
        help_text="First characters of its key; they stay when the key is forgotten.",
    )
    project_id = models.CharField(max_length=40, blank=True)
    model_asked = models.CharField(max_length=200, blank=True)
    model_served = models.CharField(max_length=200, blank=True)
    replica_id = models.CharField(max_length=40, blank=True)
    node_id = models.CharField(max_length=40, blank=True)
    outcome = models.CharField(max_length=16, choices=OUTCOMES)
    status = models.PositiveIntegerField(default=0)
    code = models.CharField(max_length=64, blank=True)
    queue_s = models.FloatField(null=True, blank=True)
    schedule_s = models.FloatField(
        null=True, blank=True, help_text="Of queue_s, the seconds in which its place was looked for."
    )
    first_token_s = models.FloatField(null=True, blank=True)
    total_s = models.FloatField(null=True, blank=True)
    prompt_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    completion_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    cached_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    estimated = models.BooleanField(default=False)
    finish_reason = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="Why the engine ended the answer; empty: not known.",
    )
    client_gone = models.BooleanField(
        default=False, db_default=False, help_text="Whether the client left before the end."
    )
    reasoning_tokens = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Of the completion, those that were thought and not said."
    )
    user = models.CharField(
        max_length=40,
        blank=True,
        default="",
        db_default="",
        help_text="Id of the user whose key it was; empty: the project's.",
    )
    cost = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="In millionths of the cluster's currency; empty: not known."
    )
    alias_target = models.CharField(
        max_length=200,
        blank=True,
        default="",
        db_default="",
        help_text="Model or adapter that was chosen, where what was asked for is an alias.",
    )
    audio_seconds = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Of sound that was heard, where the engine counts by time; empty: not known."
    )

    class Meta:
        ordering = ["-started_at", "-record_id"]
        indexes = [
            models.Index(fields=["-started_at", "-record_id"], name="routing_usage_time"),
            models.Index(fields=["model_asked", "-started_at"], name="routing_usage_model"),
            models.Index(fields=["key_id", "-started_at"], name="routing_usage_key"),
            models.Index(fields=["project_id", "-started_at"], name="routing_usage_project"),
            models.Index(fields=["request_id"], name="routing_usage_request"),
        ]

    def __str__(self) -> str:
        return self.record_id


def _count(help_text: str = "") -> models.PositiveBigIntegerField[int, int]:
    return models.PositiveBigIntegerField(default=0, db_default=0, help_text=help_text)


class UsageDay(models.Model):
    """Sums of the records of one day, key, project, model and target of an alias; see routing/domain/rollups.py. Written with the records."""

    day = models.DateField(help_text="Of UTC.")
    key_id = models.CharField(max_length=40, blank=True)
    project_id = models.CharField(max_length=40, blank=True)
    model_asked = models.CharField(max_length=200, blank=True)
    model_served = models.CharField(max_length=200, blank=True)
    alias_target = models.CharField(
        max_length=200, blank=True, default="", db_default="", help_text="Where what was asked for is an alias."
    )
    requests = _count()
    failed = _count()
    refused = _count()
    estimated = _count()
    prompt_tokens = _count()
    completion_tokens = _count()
    cached_tokens = _count()
    reasoning_tokens = _count()
    audio_seconds = _count()
    cost = _count("In millionths of the cluster's currency.")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["day", "key_id", "project_id", "model_asked", "model_served", "alias_target"],
                name="routing_day_once",
            )
        ]
        indexes = [models.Index(fields=["project_id", "day"], name="routing_day_project")]

    def __str__(self) -> str:
        return f"{self.day} {self.key_id} {self.model_asked}"


class UsageQuarter(models.Model):
    """What was spent in a quarter of an hour with a key: what budgets add up."""

    start = models.DateTimeField()
    key_id = models.CharField(max_length=40, blank=True)
    project_id = models.CharField(max_length=40, blank=True)
    cost = _count("In millionths of the cluster's currency.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["start", "key_id", "project_id"], name="routing_quarter_once")]
        indexes = [
            models.Index(fields=["project_id", "start"], name="routing_quarter_project"),
            models.Index(fields=["key_id", "start"], name="routing_quarter_key"),
        ]

    def __str__(self) -> str:
        return f"{self.start} {self.key_id}"


class PublishedSnapshot(models.Model):
    """The snapshot that nodes hold or will fetch: one row. Version is `epoch:counter`."""

    ONLY = "snapshot"

    id = models.CharField(primary_key=True, max_length=16, default=ONLY, editable=False)
    epoch = models.CharField(max_length=64)
    counter = models.PositiveBigIntegerField()
    digest = models.CharField(max_length=64, help_text="Of everything but version and time.")
    payload = models.TextField(help_text="routing.domain.snapshot.Snapshot as JSON.")
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.CheckConstraint(condition=Q(id="snapshot"), name="routing_snapshot_one_row")]

    def __str__(self) -> str:
        return self.version

    @property
    def version(self) -> str:
        return f"{self.epoch}:{self.counter}"
