"""Paths of the console's own pages, under the admin's."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from llmgw_site.console import chat, jobs, overview, users

__all__ = ["app_name", "urlpatterns", "users"]

app_name = "console"
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/overview/parts", overview.live, name="overview-parts"),
    path("admin/jobs", jobs.index, name="jobs"),
    path("admin/jobs/<str:job_id>", jobs.detail, name="job"),
    path("admin/jobs/<str:job_id>/cancel", jobs.act, {"verb": "cancel"}, name="job-cancel"),
    path("admin/jobs/<str:job_id>/retry", jobs.act, {"verb": "retry"}, name="job-retry"),
    path("admin/chat", chat.page, name="chat"),
    path("admin/chat/models", chat.models, name="chat-models"),
    path("admin/chat/key", chat.key, name="chat-key"),
]
