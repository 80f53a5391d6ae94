"""Paths below api/v1/agent/ that routing answers."""

from __future__ import annotations

from django.urls import path

from routing.api import agent

urlpatterns = [
    path("snapshot", agent.snapshot, name="agent-snapshot"),
    path("usage", agent.usage, name="agent-usage"),
]
