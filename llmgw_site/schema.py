"""The OpenAPI schema: what it says about admin tokens, and a page that shows it to people.

The page is plain HTML made here. The usual viewers load their scripts from a foreign server into the origin that holds
the console's session, and show nothing on a machine without internet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.generators import SchemaGenerator

METHODS = ("get", "post", "put", "patch", "delete")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Found by drf-spectacular because the class is there."""

    target_class = "llmgw_site.api.AdminTokenAuthentication"
    name = "adminToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": "An admin token, `at-llmgw-…`."}


ERROR: Mapping[str, Any] = {
    "type": "object",
    "description": "Every refusal. `code` is stable; docs/errors.md lists them.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "code", "param"],
            "properties": {
                "message": {"type": "string", "description": "What was refused, why, and what to do instead."},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": "string", "nullable": True, "description": "The field at fault."},
                "extra": {"type": "object", "additionalProperties": {}},
            },
        }
    },
}


def with_errors(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: every operation may answer with the one error envelope (llmgw_site/api.py)."""
    result["components"]["schemas"]["Error"] = dict(ERROR)
    shape = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    for path in result["paths"].values():
        for method in METHODS:
            if method in path:
                path[method]["responses"]["default"] = {"content": shape, "description": "Refused."}
    return result


@dataclass(frozen=True)
class Field:
    """A parameter or a field of a body."""

    name: str
    type: str
    required: bool
    text: str


@dataclass(frozen=True)
class Operation:
    """One method of one path, as the page shows it."""

    method: str
    path: str
    text: str
    query: tuple[Field, ...]
    body: tuple[Field, ...]


def docs(request: HttpRequest) -> HttpResponse:
    """The admin API for people."""
    response = render(request, "api/docs.html", {"operations": operations()})
    response["Content-Security-Policy"] = POLICY
    return response


@cache
def operations() -> tuple[Operation, ...]:
    """Every operation of the schema, in its order; made once per process, the code does not change under it."""
    schema: Mapping[str, Any] = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return tuple(
        Operation(
            method=method.upper(),
            path=path,
            text=one[method].get("description", ""),
            query=tuple(
                _field(item["name"], item["schema"], item)
                for item in one[method].get("parameters", ())
                if item["in"] == "query"
            ),
            body=tuple(_body(schema, one[method])),
        )
        for path, one in schema["paths"].items()
        for method in METHODS
        if method in one
    )


def _body(schema: Mapping[str, Any], operation: Mapping[str, Any]) -> Iterator[Field]:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    shape = _resolved(schema, content.get("schema", {}))
    needed = shape.get("required", ())
    for name, item in shape.get("properties", {}).items():
        yield _field(name, _resolved(schema, item), {**item, "required": name in needed})


def _resolved(schema: Mapping[str, Any], item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The shape that a `$ref`, alone or in an `allOf`, points to."""
    ref = item.get("$ref") or next((part["$ref"] for part in item.get("allOf", ()) if "$ref" in part), None)
    return schema["components"]["schemas"][ref.rsplit("/", 1)[1]] if ref else item


def _field(name: str, shape: Mapping[str, Any], item: Mapping[str, Any]) -> Field:
    kind = shape.get("type", "")
    text = item.get("description") or shape.get("description", "")
    return Field(name, str(kind), bool(item.get("required")), str(text))
