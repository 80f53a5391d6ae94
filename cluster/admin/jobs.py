"""Jobs: the timeline of their steps; cancel, try again. The live page is the console's."""

from __future__ import annotations

from typing import Any

import orjson
from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import TabularInline

from cluster.admin.pages import ReadPages
from cluster.models import Job, JobStep
from cluster.services import jobs
from llmgw_site.lib.addresses import told


class StepLines(TabularInline):  # type: ignore[misc]
    model = JobStep
    fields = ["number", "title", "state", "share", "detail", "started_at", "finished_at"]
    readonly_fields = fields
    ordering = ["number"]
    extra = 0
    can_delete = False

    @admin.display(description="done")
    def share(self, step: JobStep) -> str:
        return f"{step.progress:.0%}"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Job)
class JobPages(ReadPages):
    list_display = ["id", "kind", "subject", "state", "actor", "created_at", "finished_at", "message"]
    list_filter = ["state", "kind"]
    search_fields = ["id", "subject", "actor"]
    actions = ["cancel", "retry"]
    inlines = [StepLines]
    fields = [
        "id", "kind", "subject", "given", "actor", "state", "attempt", "cancel_requested", "created_at", "started_at",
        "finished_at", "code", "message", "result",
    ]  # fmt: skip

    @admin.display(description="args")
    def given(self, job: Job) -> str:
        """Without the queries of addresses, which may be signed."""
        return orjson.dumps(told(job.args), option=orjson.OPT_INDENT_2).decode()

    @admin.action(description="Cancel", permissions=["work"])
    def cancel(self, request: HttpRequest, queryset: Any) -> None:
        self.each(request, queryset, lambda job, actor: jobs.cancel(job_id=job.pk, actor=actor), "shall end")

    @admin.action(description="Try again", permissions=["work"])
    def retry(self, request: HttpRequest, queryset: Any) -> None:
        self.each(request, queryset, lambda job, actor: jobs.retry(job_id=job.pk, actor=actor), "are tried again")

    def has_work_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("cluster.change_job"))
