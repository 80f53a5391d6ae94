"""Paths below api/v1/agent/ that the cluster answers."""

from __future__ import annotations

from django.urls import path

from cluster.api import agent

urlpatterns = [
    path("join", agent.join, name="agent-join"),
    path("certificate", agent.certificate, name="agent-certificate"),
    path("heartbeat", agent.heartbeat, name="agent-heartbeat"),
    path("manifest", agent.manifest, name="agent-manifest"),
    path("demand", agent.demand, name="agent-demand"),
    path("limits", agent.limits, name="agent-limits"),
    path("heard", agent.heard, name="agent-heard"),
]
