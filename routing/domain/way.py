"""Where a request may go on a node, by its modules and by how the request came. Pure; who exactly answers comes after."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from cluster.domain.modules import Module
from llmgw_site.lib.errors import Kind, Refused

HANDED, FORWARDED = "handed", "forwarded"
"""How a request came from another node: from an edge to a router, or from a router to whom it shall run at."""


class Way(StrEnum):
    HAND = "hand"  # over to a router
    ROUTE = "route"  # this node chooses: its own replicas and providers, else another node
    HERE = "here"  # its own replicas and providers, and nobody else


def way(*, hop: str, runs: Callable[[str], bool], routers: Callable[[], bool]) -> Way | Refused:
    """The way of a request; `hop` is empty for a client's. `routers`: whether another node runs a router.

    1. a client's, and no edge runs here               503 `module_stopped`
    2. a client's, and this node runs a router         ROUTE
    3. a client's, and another node runs one           HAND
    4. a client's, and this node can answer by itself  HERE
    5. a client's, else                                503 `no_chat_upstream`
    6. handed over, and this node runs a router        ROUTE
    7. handed over, else                               503 `module_stopped`
    8. forwarded                                       HERE; it is never forwarded again
    """
    if hop == FORWARDED:  # 8
        return Way.HERE
    if hop == HANDED:  # 6, 7
        return Way.ROUTE if runs(Module.ROUTER) else stopped(Module.ROUTER)
    if not runs(Module.EDGE):  # 1
        return stopped(Module.EDGE)
    if runs(Module.ROUTER):  # 2
        return Way.ROUTE
    if routers():  # 3
        return Way.HAND
    if runs(Module.INFERENCE) or runs(Module.CLOUD):  # 4
        return Way.HERE
    return Refused(  # 5
        Kind.UNAVAILABLE,
        "no_chat_upstream",
        "This edge knows no node that could answer: no router, and no inference or cloud module of its own. "
        "Try again in a moment, or ask an administrator.",
        retry_after=5,
    )


def stopped(module: str) -> Refused:
    """503 `module_stopped`."""
    return Refused(
        Kind.UNAVAILABLE,
        "module_stopped",
        f"The module '{module}' does not run on this node: use another node, or ask an administrator to start it.",
        retry_after=10,
    )


def already_forwarded(name: str) -> Refused:
    """508: the node that a router chose does not serve the model, and passing the request on could go round for ever."""
    return Refused(
        Kind.LOOP,
        "already_forwarded",
        f"The request for '{name[:200]}' was forwarded to a node that does not serve it, and is not forwarded again: "
        "the nodes disagree on where the model runs. Try again in a few seconds.",
        param="model",
        retry_after=2,
    )
