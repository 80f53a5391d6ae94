"""What engines were seen to take."""

from __future__ import annotations

from django.db import models


class Measurement(models.Model):
    """Of all that runs with one digest. Written by `services/measuring.py`."""

    digest = models.CharField(primary_key=True, max_length=64)
    memory = models.PositiveBigIntegerField(help_text="Bytes of its node's memory, the most that was seen.")
    card_memory = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="The same of its cards; empty: it has none."
    )
    replica_id = models.CharField(max_length=40, help_text="Of which it was seen.")
    measured_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.digest


class Throughput(models.Model):
    """How much one replica of all that runs with one digest serves well on one kind of hardware. Written by `services/measuring.py`."""

    digest = models.CharField(max_length=64)
    hardware = models.CharField(max_length=200, help_text="Cards as their driver names them, or the processor's cores.")
    tps = models.FloatField(help_text="Tokens a second, all its requests together.")
    at_once = models.PositiveIntegerField(help_text="Requests at once up to which the objective held; 0: not even one.")
    first_s = models.FloatField(help_text="Seconds until the first token of nearly every request, at that load.")
    objective = models.FloatField(help_text="Seconds until the first token that were asked for.")
    measured_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["digest", "hardware"], name="cluster_throughput_once")]

    def __str__(self) -> str:
        return f"{self.digest} on {self.hardware}"
