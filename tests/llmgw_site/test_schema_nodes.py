"""What the schema says of the endpoints that gateways answer themselves is what they do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmgw_site.schema_nodes import PATHS, SHAPES
from tests.routing.gateway.test_node_api import ENDPOINTS, world


def test_paths_and_methods_are_those_of_the_gateway() -> None:
    told = {(method.upper(), path.replace("{name}", "router")) for path, methods in PATHS.items() for method in methods}
    assert told == set(ENDPOINTS)


def check(value: Any, shape: Any) -> None:
    """Whether a value has exactly the fields of its shape, all the way down."""
    if "$ref" in shape:
        shape = SHAPES[shape["$ref"].rsplit("/", 1)[1]]
    if value is None:
        assert shape.get("nullable")
        return
    kinds: dict[str, tuple[type, ...]] = {
        "object": (dict,), "array": (list,), "string": (str,), "number": (int, float), "integer": (int,), "boolean": (bool,)
    }  # fmt: skip
    assert isinstance(value, kinds[shape["type"]]), (value, shape)
    if shape["type"] == "object":
        assert set(value) == set(shape["required"]) == set(shape["properties"])
        for name, item in shape["properties"].items():
            check(value[name], item)
    if shape["type"] == "array":
        assert value
        for item in value:
            check(item, shape["items"])
    assert value in shape.get("enum", (value,))


@pytest.mark.parametrize(("method", "path"), ENDPOINTS)
async def test_answers_have_the_shape_that_is_told(tmp_path: Path, method: str, path: str) -> None:
    bodies = {"/api/v1/router/strategy": {"strategy": "random"}, "/api/v1/node/modules/router": {"state": "stopped"}}
    async with world(tmp_path) as it:
        answer = await it.client.request(method, path, json=bodies.get(path))
        assert answer.status_code == 200
        told = PATHS[path.replace("/modules/router", "/modules/{name}")][method.lower()]
        check(answer.json(), told["responses"]["200"]["content"]["application/json"]["schema"])
