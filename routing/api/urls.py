"""Paths of routing below /api/v1/."""

from __future__ import annotations

from django.urls import path

from routing.api.budgets import Budgets
from routing.api.reports import Reports, Requests
from routing.api.views import Status, Usage

urlpatterns = [
    path("usage", Usage.as_view({"get": "list"}), name="usage"),
    path("usage/summary", Usage.as_view({"get": "summary"}), name="usage-summary"),
    path("usage/report", Reports.as_view({"get": "report"}), name="usage-report"),
    path("budgets", Budgets.as_view({"get": "list"}), name="budgets"),
    path(
        "budgets/<path:ref>/<str:period>",
        Budgets.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
        name="budget",
    ),
    path("requests/<str:ref>", Requests.as_view({"get": "retrieve"}), name="request"),
    path("status", Status.as_view(), name="status"),
]
