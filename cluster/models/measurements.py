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
