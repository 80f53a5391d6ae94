"""Calls between nodes that a test makes itself, with a node's own identity."""

from __future__ import annotations

import copy
import shutil
from typing import Any

import httpx
import orjson

from llmgw_site.lib.clock import SystemClock
from llmgw_site.lib.config import load
from routing.gateway.membership import Marks, Members
from tests.cluster.harness.node import Node


def members_of(node: Node) -> Members:
    """What the node's gateway knows of itself and the others, read from its files now."""
    members = Members(load(node.environ), SystemClock())
    members.look()
    return members


def thief(node: Node) -> Node:
    """Somebody with a copy of a node's identity, certificate and map, who runs nothing and forgets nothing."""
    other = copy.copy(node)
    other.data = node.data.with_name(f"{node.name}-copy")
    other.environ = {**node.environ, "LLMGW_DATA": str(other.data)}
    for part in ("node", "cluster"):
        shutil.copytree(node.data / part, other.data / part)
    return other


def call(
    caller: Node, callee: Node, method: str, path: str, body: Any = None, *, marks: Marks | None = None
) -> httpx.Response:
    """A signed call of `caller` to the node listener of `callee`, by the link."""
    raw = b"" if body is None else orjson.dumps(body)
    members = members_of(caller)
    signed = members.sign(members.nodes[callee.id], method=method, path=path, body=raw, marks=marks)
    headers = [(name.decode(), value.decode("latin-1")) for name, value in signed]
    with httpx.Client(trust_env=False, timeout=20) as client:
        return client.request(
            method, callee.link.url + path, content=raw, headers=[*headers, ("content-type", "application/json")]
        )
