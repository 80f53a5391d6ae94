"""The part of the OpenAPI schema that Django does not serve: endpoints that every node's gateway answers itself.

They are written down by hand, since routing/gateway/node_api.py is no Django; a test compares paths and methods.
"""

from __future__ import annotations

from typing import Any

from cluster.domain.modules import Module, ModuleState
from cluster.domain.states import NodeState
from routing.domain.nodes import Strategy

TEXT, NUMBER, FLAG = {"type": "string"}, {"type": "number"}, {"type": "boolean"}
ABSENT = {"type": "number", "nullable": True}


def _object(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required.split()}


def _list(item: Any) -> dict[str, Any]:
    return {"type": "array", "items": item}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


STRATEGY_NAME = {"type": "string", "enum": [item.value for item in Strategy]}
MODULE = _object(
    "name state code message",
    name={"type": "string", "enum": [item.value for item in Module]},
    state={"type": "string", "enum": [item.value for item in ModuleState]},
    code={**TEXT, "description": "Why it cannot run, if it cannot."},
    message=TEXT,
)
SWITCH = {"type": "string", "enum": [ModuleState.RUNNING.value, ModuleState.STOPPED.value]}
SHAPES: dict[str, Any] = {
    "RouterStrategyIn": _object(
        "strategy",
        strategy=STRATEGY_NAME,
        affinity={**FLAG, "description": "Keep conversations where they were; left out: as it is."},
    ),
    "RouterStrategy": _object(
        "strategy affinity strategies", strategy=STRATEGY_NAME, affinity=FLAG, strategies=_list(STRATEGY_NAME)
    ),
    "CloudPeer": _object(
        "model node node_id serving_state down_for_s in_flight answer_s",
        model=TEXT,
        node=TEXT,
        node_id=TEXT,
        serving_state={
            **TEXT,
            "description": "Of its replica nearest to ready; or `unknown`, `absent` (not offered), `lost` (its node is).",
        },
        down_for_s={**ABSENT, "description": "Seconds since it stopped answering; null: it answers."},
        in_flight={"type": "integer", "description": "Requests of this node in progress there."},
        answer_s={**ABSENT, "description": "Recent time to the first byte or token, in seconds."},
    ),
    "NodeModule": MODULE,
    "NodeModules": _object(
        "node_id managed roles modules",
        node_id=TEXT,
        managed={**FLAG, "description": "The cluster setup names this node."},
        roles=_list(TEXT),
        modules=_list(_ref("NodeModule")),
    ),
    "NodeModuleSwitch": _object("state", state=SWITCH),
    "NodeModuleSwitched": _object(
        "name state wanted", name=TEXT, state={**TEXT, "description": "At this moment."}, wanted=SWITCH
    ),
    "NodeMapEntry": _object(
        "node_id name address public_key state modules maintenance maintenance_why last_seen_age_s",
        node_id=TEXT,
        name=TEXT,
        address={**TEXT, "description": "Base URL of its node listener."},
        public_key=TEXT,
        state={"type": "string", "enum": [item.value for item in NodeState]},
        modules=_list(_ref("NodeModule")),
        maintenance=TEXT,
        maintenance_why=TEXT,
        last_seen_age_s={**ABSENT, "description": "Since the controllers, or this node itself, last heard of it."},
    ),
    "NodeMap": _object(
        "version age_s nodes",
        version=TEXT,
        age_s={**ABSENT, "description": "Since the controllers made this map; null: there is none yet."},
        nodes=_list(_ref("NodeMapEntry")),
    ),
}


def _operation(name: str, text: str, answer: Any, *, body: str = "", parameters: Any = ()) -> dict[str, Any]:
    content = {"application/json": {"schema": answer}}
    found: dict[str, Any] = {"operationId": name, "description": text}
    if parameters:
        found["parameters"] = list(parameters)
    found |= {"tags": ["node"], "security": [{"adminToken": []}]}
    if body:
        found["requestBody"] = {"content": {"application/json": {"schema": _ref(body)}}, "required": True}
    return found | {"responses": {"200": {"content": content, "description": ""}}}


_HERE = "Answered by the gateway of the node that is asked, Django or not."
PATHS: dict[str, dict[str, Any]] = {
    "/api/v1/router/strategy": {
        "get": _operation("router_strategy_retrieve", f"How this node chooses the node that answers. {_HERE}", _ref("RouterStrategy")),
        "put": _operation(
            "router_strategy_update",
            f"Choose otherwise; stored on this node, kept across restarts. {_HERE}",
            _ref("RouterStrategy"),
            body="RouterStrategyIn",
        ),
    },
    "/api/v1/cloud/peers": {
        "get": _operation(
            "cloud_peers_list",
            f"The other nodes that this node forwards each model to. {_HERE}",
            _list(_ref("CloudPeer")),
            parameters=({"in": "query", "name": "model", "schema": TEXT, "description": "This model only."},),
        )
    },
    "/api/v1/node/modules": {
        "get": _operation("node_modules_retrieve", f"The modules of this node. {_HERE}", _ref("NodeModules"))
    },
    "/api/v1/node/modules/{name}": {
        "put": _operation(
            "node_modules_update",
            f"Switch a module of this node on or off, unless the cluster setup names the node. {_HERE}",
            _ref("NodeModuleSwitched"),
            body="NodeModuleSwitch",
            parameters=({"in": "path", "name": "name", "schema": TEXT, "required": True},),
        )
    },
    "/api/v1/node/map": {
        "get": _operation("node_map_retrieve", f"The module map as this node has it. {_HERE}", _ref("NodeMap"))
    },
}  # fmt: skip


def with_node_endpoints(result: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
    """A hook of drf-spectacular: put them among the others."""
    result["paths"] = dict(sorted({**result["paths"], **PATHS}.items()))
    result["components"]["schemas"] = dict(sorted({**result["components"]["schemas"], **SHAPES}.items()))
    return result
