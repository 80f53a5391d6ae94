"""What controllers remember of a model from one look to the next."""

from __future__ import annotations

from django.db import models

from catalog.models import Model


class ModelStanding(models.Model):
    """cluster.domain.types.Standing and Claim as a row; times are Unix seconds of the database's clock.

    Written by `services/apply.py`, and by the services that take orders (`restart`, `retry`, a request for a model at
    rest), always by conditional update: `version` rises with each. `attempt_at` and what follows decide nothing: they are
    what waiting requests are told, and `services/demands.py` alone writes them.
    """

    model = models.OneToOneField(Model, primary_key=True, on_delete=models.CASCADE, related_name="standing")
    version = models.PositiveBigIntegerField(default=0)
    grown = models.PositiveIntegerField(default=0)
    broke_off_at = models.FloatField(default=0.0)
    pressed_since = models.FloatField(null=True, blank=True)
    quiet_since = models.FloatField(null=True, blank=True)
    asked_at = models.FloatField(null=True, blank=True)
    used_at = models.FloatField(null=True, blank=True)
    gave_up = models.BooleanField(default=False)
    failures = models.PositiveIntegerField(default=0)
    parked_at = models.FloatField(null=True, blank=True)
    parked_digest = models.CharField(max_length=64, blank=True)
    parked_code = models.CharField(max_length=64, blank=True)
    parked_message = models.TextField(blank=True)
    restarting = models.JSONField(default=list, blank=True)
    in_place = models.BooleanField(default=False)
    vetted = models.JSONField(
        null=True, blank=True, help_text="Replicas that have answered since an update began; empty: none is under way."
    )
    claim = models.JSONField(null=True, blank=True, help_text="Room that is kept for it: cluster.domain.types.Share.")
    claim_until = models.FloatField(default=0.0)
    attempt_at = models.FloatField(null=True, blank=True, help_text="Its last attempt to come up for a request.")
    why_at = models.FloatField(null=True, blank=True, help_text="The look at which there was no place for it.")
    why_code = models.CharField(max_length=64, blank=True)
    why_message = models.TextField(blank=True)

    def __str__(self) -> str:
        return str(self.model)
