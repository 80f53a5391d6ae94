"""The queue of record: jobs and their steps. Broker messages only wake somebody who looks here."""

from __future__ import annotations

from functools import partial

from django.db import models
from django.db.models import Q

from cluster.choices import JOB_STATES, STEP_STATES
from cluster.domain.states import JOB_TERMINAL, JobState, StepState
from llmgw_site.lib.clock import new_id

_ENDED = sorted(JOB_TERMINAL)


class Job(models.Model):
    """A long piece of work that survives restarts."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "job"), editable=False)
    kind = models.CharField(max_length=32)
    subject = models.CharField(max_length=200, help_text="What it works on; one open job per kind and subject.")
    args = models.JSONField(default=dict)
    actor = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=JOB_STATES, default=JobState.QUEUED.value)
    attempt = models.PositiveIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    wake_at = models.DateTimeField(null=True, blank=True, help_text="Nobody needs to look before then.")
    claimed_by = models.CharField(max_length=64, blank=True)
    claimed_until = models.DateTimeField(null=True, blank=True, help_text="After that its worker counts as dead.")
    cancel_requested = models.BooleanField(default=False)
    code = models.CharField(max_length=64, blank=True)
    message = models.TextField(blank=True)
    result = models.JSONField(default=dict, blank=True)

    class Meta:
        ordering = ["-created_at", "-id"]
        indexes = [models.Index(fields=["state", "wake_at"], name="cluster_job_to_do")]
        constraints = [
            models.UniqueConstraint(
                fields=["kind", "subject"], condition=~Q(state__in=_ENDED), name="cluster_job_one_open_per_subject"
            ),
            models.CheckConstraint(
                condition=Q(state__in=_ENDED, finished_at__isnull=False)
                | (~Q(state__in=_ENDED) & Q(finished_at__isnull=True)),
                name="cluster_job_end_has_a_time",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


class JobStep(models.Model):
    """One step of a job, with what it found (`data`) for the steps after it."""

    id = models.CharField(primary_key=True, max_length=40, default=partial(new_id, "step"), editable=False)
    job = models.ForeignKey(Job, on_delete=models.CASCADE, related_name="steps")
    number = models.PositiveIntegerField()
    name = models.CharField(max_length=40)
    title = models.CharField(max_length=200)
    state = models.CharField(max_length=16, choices=STEP_STATES, default=StepState.WAITING.value)
    progress = models.FloatField(default=0.0, help_text="0 to 1")
    detail = models.TextField(blank=True)
    data = models.JSONField(default=dict, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["job_id", "number"]
        constraints = [models.UniqueConstraint(fields=["job", "number"], name="cluster_step_number_once")]

    def __str__(self) -> str:
        return self.title
