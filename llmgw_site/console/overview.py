"""The overview: the admin's front page. The theme calls `dashboard`; the page then asks `live` for its parts again."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from catalog.services import access as scoped
from cluster.domain.states import NodeState
from llmgw_site.console import access, selectors, traffic
from llmgw_site.console.views import NodeView

NODES_SHOWN = 12
"""Nodes on the overview; the Nodes page has all."""


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """The front page's context: what this user may see of nodes, models, jobs and requests."""
    return {**context, "title": "Overview", **_parts(request)}


@access.page()
def live(request: HttpRequest) -> HttpResponse:
    """The same parts alone, as they stand now."""
    return access.fragment(request, "console/overview_parts.html", **_parts(request))


def _parts(request: HttpRequest) -> dict[str, Any]:
    """Each part is there only for who may see its rows: None leaves it out."""
    may = request.user.has_perm  # type: ignore[union-attr]
    parts: dict[str, Any] = {
        "may_nodes": may("cluster.view_node"),
        "may_models": may("catalog.view_model"),
        "may_replicas": may("cluster.view_replica"),
        "may_jobs": may("cluster.view_job"),
        "may_usage": may("routing.view_usagerecord"),
        "may_add": may("catalog.add_model"),
        "in_scopes": scoped.anywhere(request.user, ["catalog.view_project"]),
        "endpoint": f"{settings.CONFIG.client_url}/v1",
    }
    if parts["may_nodes"] or parts["may_models"] or parts["may_replicas"]:
        parts["cluster"] = selectors.cluster()
        parts["nodes"] = _first(parts["cluster"].nodes)
        if parts["may_models"]:
            parts["example"] = _example(parts["cluster"])
    if parts["may_jobs"]:
        parts["jobs"] = selectors.open_jobs()
    if parts["may_usage"] and "cluster" in parts:
        now = timezone.now()
        parts["tiles"] = traffic.tiles(
            parts["cluster"], selectors.minutes(traffic.WINDOW, now), into_minute=now.second + now.microsecond / 1e6
        )
    return parts


def _first(nodes: tuple[NodeView, ...]) -> tuple[NodeView, ...]:
    """All nodes where they are few; of many, those that somebody should look at come first."""
    if len(nodes) <= NODES_SHOWN:
        return nodes
    return tuple(sorted(nodes, key=lambda node: node.state is NodeState.ONLINE and not node.problems)[:NODES_SHOWN])


def _example(cluster: selectors.Cluster) -> str:
    """The model that the curl line names: one that answers chats now, else any that will."""
    chats = [model for model in cluster.models if not model.embeddings]
    ready = [model for model in chats if model.status.ready]
    return next((model.name for model in (*ready, *chats)), "")
