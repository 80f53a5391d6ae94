"""The OpenAPI schema is complete, and the API keeps to it whatever it is sent."""

from __future__ import annotations

import io

import pytest
import yaml
from django.core.management import call_command

from llmgw_site.schema_nodes import PATHS


def schema() -> dict[str, object]:
    out = io.StringIO()
    call_command("spectacular", "--fail-on-warn", "--validate", stdout=out)
    loaded: dict[str, object] = yaml.safe_load(out.getvalue())
    return loaded


def test_the_schema_has_no_warnings_and_says_how_to_sign_in() -> None:
    found = schema()
    assert found["components"]["securitySchemes"]["adminToken"]["scheme"] == "bearer"  # type: ignore[index]
    paths = found["paths"]
    assert isinstance(paths, dict)
    assert {"/api/v1/models", "/api/v1/models/{ref}/profiles", "/api/v1/keys", "/api/v1/events"} <= set(paths)


@pytest.mark.django_db
def test_every_path_refuses_nobody(client: object) -> None:
    """Without a token or session there is 401, whatever the method; the agents' paths do not exist for people."""
    paths = schema()["paths"]
    assert isinstance(paths, dict)
    for path, methods in paths.items():
        if path in PATHS:  # not Django's: tests/routing/gateway/test_node_api.py
            continue
        for method in methods:
            url = path.replace("{", "").replace("}", "")
            answer = client.generic(method.upper(), url, b"{}", content_type="application/json")  # type: ignore[attr-defined]
            assert answer.status_code in ((401, 404) if "/agent/" in path else (401,)), f"{method} {path}"
