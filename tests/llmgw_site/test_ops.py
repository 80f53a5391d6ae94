"""Health and metrics of `web`: for the unix socket and the metrics listener, for nobody else."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("path", ["/internal/healthz", "/metrics"])
def test_only_the_inside_finds_it(path: str) -> None:
    client = Client()
    assert client.get(path).status_code == 200
    assert client.get(path, headers={"x-llmgw-listener": "metrics"}).status_code == 200
    for listener in ("client", "node", "", "Metrics"):
        assert client.get(path, headers={"x-llmgw-listener": listener}).status_code == 404


def test_health_names_the_database() -> None:
    body = Client().get("/internal/healthz").json()
    assert body["status"] == "ok"
    assert body["database"] in ("sqlite", "postgresql")


def test_metrics_are_prometheus_text() -> None:
    answer = Client().get("/metrics")
    assert answer["content-type"].startswith("text/plain")
    assert b"# HELP" in answer.content
