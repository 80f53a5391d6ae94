"""Every path of `web`, a line for each room."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

urlpatterns = [
    path("api/v1/schema", SpectacularAPIView.as_view(), name="schema"),
    path("api/v1/docs", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    path("api/v1/agent/", include("cluster.api.agent_urls")),
    path("api/v1/agent/", include("routing.api.agent_urls")),
    path("api/v1/", include("catalog.api.urls")),
    path("api/v1/", include("cluster.api.urls")),
    path("api/v1/", include("routing.api.urls")),
    path("", include("llmgw_site.ops")),
    path("", include("llmgw_site.console.urls")),
    path("admin/", admin.site.urls),
]
