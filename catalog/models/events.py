"""What was changed, by whom, and why."""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from catalog.models.fields import id_field


class Event(models.Model):
    """Append-only. Names what it is about by kind and id, not by foreign key: it outlives its subject."""

    id = id_field("evt")
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=200, help_text="`user:NAME`, `token:PREFIX (user NAME)`, or a part of llmgw.")
    kind = models.CharField(max_length=64, help_text="What happened, such as `model_added`.")
    subject_kind = models.CharField(max_length=32)
    subject_id = models.CharField(max_length=64)
    about = models.CharField(
        max_length=64, blank=True, help_text="Id of the model that it is about, where its subject is a replica of one."
    )
    message = models.TextField(blank=True, help_text="The same for people.")
    before = models.JSONField(null=True, blank=True, help_text="Changed fields as they were; empty: it was new.")
    after = models.JSONField(null=True, blank=True, help_text="Changed fields as they are; empty: it is gone.")
    why = models.TextField(blank=True, help_text="Reason, where it was a decision.")

    class Meta:
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["-at", "-id"], name="catalog_event_time"),
            models.Index(fields=["subject_kind", "subject_id", "-at"], name="catalog_event_subject"),
            models.Index(fields=["kind", "-at"], name="catalog_event_kind"),
            models.Index(fields=["about", "-at"], condition=~models.Q(about=""), name="catalog_event_about"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject_id}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("events are written once")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("events are not deleted")
