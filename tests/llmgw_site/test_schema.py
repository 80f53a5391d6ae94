"""The API's page for people: everything of the schema, nothing from elsewhere."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from drf_spectacular.generators import SchemaGenerator

from llmgw_site.lib.errors import Kind, Refused, envelope
from llmgw_site.schema import operations

pytestmark = pytest.mark.django_db


def test_every_operation_stands_on_the_page() -> None:
    page = Client().get("/api/v1/docs").content.decode()
    shown = re.findall(r"<h2><b>(\w+)</b> (\S+)</h2>", page)
    assert shown == [(operation.method, operation.path) for operation in operations()]
    assert ("POST", "/api/v1/models") in shown
    assert ("POST", "/api/v1/jobs") in shown


def test_the_page_loads_nothing_from_anywhere() -> None:
    answer = Client().get("/api/v1/docs")
    assert "default-src 'none'" in answer["Content-Security-Policy"]
    loading = r"<(?:script|link|img|iframe)|(?:src|href|action)=.?https?:|url\(|@import"
    assert re.findall(loading, answer.content.decode()) == []


def test_fields_of_a_body_are_told_with_type_and_need() -> None:
    add = next(item for item in operations() if (item.method, item.path) == ("POST", "/api/v1/models"))
    fields = {field.name: field for field in add.body}
    assert (fields["name"].type, fields["name"].required) == ("string", True)
    assert (fields["replicas"].type, fields["replicas"].required) == ("integer", False)
    assert "first profile" in fields["profile"].text
    listing = next(item for item in operations() if (item.method, item.path) == ("GET", "/api/v1/events"))
    assert {"kind", "actor", "page"} <= {field.name for field in listing.query}


def test_every_operation_says_how_it_refuses() -> None:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    refusals = {
        (path, method): one["responses"].get("default", {}).get("content", {})
        for path, methods in schema["paths"].items()
        for method, one in methods.items()
    }
    assert refusals
    assert all("Error" in str(content) for content in refusals.values()), refusals
    shape = schema["components"]["schemas"]["Error"]["properties"]["error"]
    told = envelope(Refused(Kind.INVALID, "a_code", "words", param="x", extra={"more": 1}))["error"]
    assert set(told) == set(shape["properties"])
    assert set(told) - {"extra"} == set(shape["required"])
