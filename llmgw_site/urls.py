"""Every path of `web`, a line for each room."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView

from llmgw_site import schema

handler404 = "llmgw_site.api.not_found"
handler500 = "llmgw_site.api.server_error"

urlpatterns = [
    path("api/v1/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/v1/docs", schema.docs, name="docs"),
    path("api/v1/agent/", include("cluster.api.agent_urls")),
    path("api/v1/agent/", include("routing.api.agent_urls")),
    path("api/v1/", include("cluster.api.urls")),  # before the catalogue's: a model's name there takes slashes
    path("api/v1/", include("catalog.api.urls")),
    path("api/v1/", include("routing.api.urls")),
    path("", include("llmgw_site.ops")),
    path("", include("llmgw_site.console.urls")),
    path("admin/", admin.site.urls),
]
