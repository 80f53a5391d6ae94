"""Paths of routing below /api/v1/."""

from __future__ import annotations

from django.urls import path

from routing.api.views import Status, Usage

urlpatterns = [
    path("usage", Usage.as_view({"get": "list"}), name="usage"),
    path("usage/summary", Usage.as_view({"get": "summary"}), name="usage-summary"),
    path("status", Status.as_view(), name="status"),
]
