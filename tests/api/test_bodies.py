"""Every POST, PUT and PATCH of the admin API with bodies that are none: refused with a 4xx and a stable code, and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings as django
from django.db import transaction
from drf_spectacular.generators import SchemaGenerator

from catalog.models import Event
from llmgw_site.schema_nodes import PATHS
from tests.api.calls import Answer, Caller, a_caller
from tests.cluster.rows import Machine
from tests.processes import free_port
from tests.rows import a_key, a_model, a_project, a_provider

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore")]

DEEP = b'{"name":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
RAW: dict[str, bytes] = {
    "no JSON": b"{name: 1",
    "cut off": b'{"name": "x"',
    "not UTF-8": b'{"name": "\xff\xfe"}',
    "too deep": DEEP,
    "a huge number": b'{"name": ' + b"9" * 5000 + b"}",
}
"""Bytes that are no JSON of ours."""
WRONG: list[Any] = [None, True, -1, 1 << 70, 1e308, "", "x" * 10_000, "a\x00b", "\ud800", [], [[]], [1], {}, {"x": {}}]
"""Values that are put in the place of each field in turn."""
REMEMBERS = {
    "/api/v1/models/{ref}/origin",
    "/api/v1/models/{ref}/adapters/{adapter}/origin",
    "/api/v1/mirror/{ref}/origin",
}
"""An origin that was looked for in vain is noted: what came of it is shown, and it is not looked for again at once."""
LITERALS = ("NaN", "Infinity", "-Infinity")


def shapes() -> dict[tuple[str, str], dict[str, Any]]:
    """Of each operation that takes or may be sent a body: the fields that its schema names."""
    schema: Any = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    found = {}
    for path, item in schema["paths"].items():
        for method in ("post", "put", "patch"):
            if method in item and "/agent/" not in path and path not in PATHS:
                content = item[method].get("requestBody", {}).get("content", {}).get("application/json", {})
                found[method.upper(), path] = _fields(content.get("schema", {}), schema)
    return found


def _fields(shape: dict[str, Any], schema: Any) -> dict[str, Any]:
    if "$ref" in shape:
        shape = schema["components"]["schemas"][shape["$ref"].rpartition("/")[2]]
    return dict(shape.get("properties", {}))


OPERATIONS = shapes()


def values(shape: Any) -> Any:
    """A good enough value of a field, so that others are reached."""
    kind = shape.get("type")
    return {"integer": 1, "number": 1.0, "boolean": True, "array": [], "object": {}}.get(kind, "x")


@pytest.fixture
def caller(monkeypatch: pytest.MonkeyPatch) -> Caller:
    nowhere = replace(django.CONFIG, registry=f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(django, "CONFIG", nowhere)  # no test asks a registry out there
    project = a_project()
    a_key("bot", project=project)
    a_model(project=project)
    a_provider("cloud")
    Machine("n1").heartbeat()
    return a_caller()


NAMES = {
    "models": "tiny", "keys": "bot", "projects": "main", "nodes": "n1", "providers": "cloud", "teams": "default",
    "organisations": "default",
}  # fmt: skip


def place(path: str) -> str:
    """The address of something that is there, as far as this test has one."""
    parts = path.removeprefix("/api/v1/").strip("/").split("/")
    noun = parts[0]
    return "/".join(
        NAMES.get(noun, "nothing") if part.startswith("{") and at == 1 else part.strip("{}")
        for at, part in enumerate(parts)
    )


def tables() -> dict[str, int]:
    return {kind._meta.label: kind._base_manager.count() for kind in apps.get_models() if kind is not Event}


def send(caller: Caller, method: str, path: str, raw: bytes, **more: str) -> Answer:
    """One request; what it changed is rolled back if it was done, and stays if it was refused."""
    with transaction.atomic():
        answer = caller(method, place(path), raw=raw, **more)
        transaction.set_rollback(answer.status < 400)
    assert answer.status < 400 or answer.code != "internal_error", (method, path, raw[:200], answer)
    assert answer.status < 500 or answer.status in (502, 503, 504), (method, path, raw[:200], answer)
    return answer


def each(check: Callable[[str, str, dict[str, Any]], Iterator[str]]) -> list[str]:
    """What is wrong of all operations, so that one failure hides no other."""
    wrong: list[str] = []
    for (method, path), fields in OPERATIONS.items():
        before = tables()
        wrong += check(method, path, fields)
        after = {} if path in REMEMBERS else tables()
        wrong += [
            f"{method} {path}: rows were written of {name}" for name, size in after.items() if size != before[name]
        ]
    return wrong


def test_what_is_no_object_is_refused(caller: Caller) -> None:
    def check(method: str, path: str, fields: dict[str, Any]) -> Iterator[str]:
        for raw in [*RAW.values(), *(json.dumps(item).encode() for item in ([], [1], "x", 1, True, 1.5))]:
            answer = send(caller, method, path, raw)
            if not 400 <= answer.status < 500:
                yield f"{method} {path} {raw[:40]!r}: {answer.status}"

    assert each(check) == []


def test_a_field_that_nobody_knows_is_refused(caller: Caller) -> None:
    def check(method: str, path: str, fields: dict[str, Any]) -> Iterator[str]:
        body = {name: values(shape) for name, shape in fields.items() if not shape.get("readOnly")}
        for sent in ({"no_such_field": 1}, {**body, "no_such_field": 1}):
            answer = send(caller, method, path, json.dumps(sent).encode())
            if answer.status != 404 and answer.code != "unknown_field":
                yield f"{method} {path} {json.dumps(sent)[:90]}: {answer.status} {answer.body}"

    assert each(check) == []


def test_a_content_type_that_is_not_json_is_refused(caller: Caller) -> None:
    def check(method: str, path: str, fields: dict[str, Any]) -> Iterator[str]:
        for kind, raw in (("text/plain", b"hello"), ("application/xml", b"<a/>"), ("application/x-www-form-urlencoded", b"a=1"),
                          ("multipart/form-data; boundary=x", b"--x\r\n\r\n"), ("image/png", b"\x89PNG"), ("garbage", b"{}")):  # fmt: skip
            answer = send(caller, method, path, raw, content_type=kind)
            if not 400 <= answer.status < 500:
                yield f"{method} {path} {kind}: {answer.status}"

    assert each(check) == []


def everything(caller: Caller, most: int) -> list[str]:
    """What is wrong: of each field `most` of the values, in turn, so that all of them are used."""
    turn = count()

    def check(method: str, path: str, fields: dict[str, Any]) -> Iterator[str]:
        body = {name: values(shape) for name, shape in fields.items() if not shape.get("readOnly")}
        for name in body:
            for _ in range(most):
                send(caller, method, path, json.dumps({**body, name: WRONG[next(turn) % len(WRONG)]}).encode())
            literal = LITERALS[next(turn) % len(LITERALS)]
            answer = send(caller, method, path, json.dumps({**body, name: "@@"}).replace('"@@"', literal).encode())
            if not 400 <= answer.status < 500:
                yield f"{method} {path} {name} {literal}: {answer.status}"
        send(caller, method, path, b"{}")

    return each(check)


def test_no_value_of_any_field_breaks_anything(caller: Caller) -> None:
    assert everything(caller, 1) == []


@pytest.mark.prove
@pytest.mark.timeout(600)
def test_prove_that_no_value_of_any_field_breaks_anything(caller: Caller) -> None:
    assert everything(caller, len(WRONG)) == []
