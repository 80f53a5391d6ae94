"""Nodes as decisions read them: all at once and without the ORM's work, which at 10,000 nodes would be half of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson
from django.db import connection

from cluster.models import Node

_PLAIN = (
    "id",
    "name",
    "address",
    "fabric",
    "fabric_address",
    "maintenance",
    "maintenance_why",
    "weights_mark",
    "last_seen_at",
    "hardware",
)
_COMMON = ("engines", "modules", "roles", "labels", "cards_maintenance", "fetches")


class NodeRow:
    """What decisions need of a row of Node, under the same names. Rows may share values, so nobody changes any."""

    __slots__ = (*_PLAIN, *_COMMON)

    id: str
    name: str
    address: str
    fabric: str
    fabric_address: str
    maintenance: str
    maintenance_why: str
    weights_mark: str
    last_seen_at: datetime | None
    hardware: dict[str, Any]
    engines: list[dict[str, Any]]
    modules: list[dict[str, Any]]
    roles: list[str]
    labels: dict[str, str]
    cards_maintenance: dict[str, dict[str, Any]]
    fetches: list[dict[str, Any]]


def node_rows() -> Iterator[NodeRow]:
    """The nodes of the cluster, by name. One query. One row at a time: what is let go at once, the garbage collector need
    not look through."""
    with connection.cursor() as cursor:
        columns = ", ".join((*_PLAIN, *_COMMON))
        cursor.execute(f"SELECT {columns} FROM cluster_node WHERE removed_at IS NULL ORDER BY name, id")  # noqa: S608
        found = cursor.fetchall()
    read: dict[str, Any] = {}  # what is written in these columns: most nodes say the same
    for node_id, name, address, fabric, there, maintenance, why, mark, seen, hardware, *common in found:
        row = NodeRow()
        row.id, row.name, row.maintenance, row.maintenance_why = node_id, name, maintenance, why
        row.address, row.fabric, row.fabric_address = address, fabric, there
        row.weights_mark = mark
        row.last_seen_at = seen.replace(tzinfo=UTC) if seen is not None and seen.tzinfo is None else seen
        row.hardware = orjson.loads(hardware)
        for column, text in zip(_COMMON, common, strict=True):
            if text not in read:
                read[text] = orjson.loads(text) if text is not None else []
            setattr(row, column, read[text])
        yield row


def problems() -> list[dict[str, str]]:
    """What nodes say that is wrong with them, by name."""
    rows = Node.objects.filter(removed_at__isnull=True).exclude(problems=[]).order_by("name", "id")
    return [{"node": name, "problem": text} for name, found in rows.values_list("name", "problems") for text in found]
