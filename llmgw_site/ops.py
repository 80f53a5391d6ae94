"""What `web` knows about itself: /internal/healthz and /metrics, for the unix socket and the metrics listener only.

The gateway marks everything it hands over with `x-llmgw-listener`; what came in at the client or node listener
finds nothing here.
"""

from __future__ import annotations

from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django_prometheus.exports import ExportToDjangoView


def _inside_only(request: HttpRequest) -> None:
    if request.headers.get("x-llmgw-listener", "metrics") != "metrics":
        raise Http404


def healthz(request: HttpRequest) -> HttpResponse:
    """200 when this process answers and its database does; 503 otherwise."""
    _inside_only(request)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except Exception as error:
        return JsonResponse({"status": "failing", "database": type(error).__name__}, status=503)
    return JsonResponse({"status": "ok", "database": connection.vendor})


def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus text of this process."""
    _inside_only(request)
    response: HttpResponse = ExportToDjangoView(request)
    return response


urlpatterns = [path("internal/healthz", healthz, name="healthz"), path("metrics", metrics, name="metrics")]
