"""The module map: compiled from the nodes' rows, published under a version, told to nodes in answers to heartbeats.

It is versioned over address, modules, state, keys, maintenance and what was removed. When a node was last heard makes no
version by itself; it is brought up to date now and then (`refresh_after`), so that ages computed from a node's copy stay
true to about that span.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson
from django.db.models import F, Q

from cluster import selectors
from cluster.domain.joining import ControllerAddress
from cluster.domain.modules import LEGACY_MODULES, MapNode, Module, ModuleMap, ModuleReport
from cluster.models import Certificate, ClusterIdentity, Node, PublishedMap
from cluster.selectors import from_unix, unix
from cluster.services import identity
from cluster.services.locks import plan_lock
from cluster.wire import from_dict, to_dict

MOST_MODULES = 32
"""Modules that are kept of one node's report."""
REMOVED_KEPT = 1_000
"""Removed nodes that the map names, the latest first: calls of older ones are refused too, as of a node unknown."""
_NODE_FIELDS = (
    "id", "name", "address", "public_key", "last_seen_at", "modules", "roles", "maintenance", "maintenance_why"
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """`news`: nodes should look at it now; not so for a version that only knows better when nodes were heard."""

    version: str
    news: bool


_size = 0


def size() -> int:
    """Nodes of the cluster when this process last looked; 0: it has not yet."""
    return _size


def publish() -> Published:
    """Compile the map and publish it if its content is new, or its times are old.

    As with the snapshot, the version is written under the plan lock with a fresh compilation: of two publishers the one
    that saw older rows can never have the higher counter.
    """
    global _size
    own, now, fresh = _look()
    _size = len(fresh.nodes)
    current = _current(own)
    if current is not None and current.digest == digest(fresh) and not _aged(current, fresh, now):
        return Published(current.version, news=False)
    with plan_lock():
        own, now, fresh = _look()  # the store's name too: it may have another one since (`version_for`)
        named = digest(fresh)
        current = _current(own)
        news = current is None or current.digest != named
        if current is not None and not news and not _aged(current, fresh, now):
            return Published(current.version, news=False)
        counter = current.counter + 1 if current is not None else 1
        epoch, version = own.epoch, f"{own.epoch}:{counter}"
        payload = orjson.dumps(to_dict(replace(fresh, version=version))).decode()
        fields = {"epoch": epoch, "counter": counter, "digest": named, "payload": payload, "made_at": from_unix(now)}
        PublishedMap.objects.update_or_create(id=PublishedMap.ONLY, defaults=fields)
    return Published(version, news=news)


def _look() -> tuple[ClusterIdentity, float, ModuleMap]:
    """The store's name, its time, and the map of this moment. Five queries, however many nodes there are."""
    now, own = selectors.database_now(), identity.ensure_identity()
    return own, now, _compile(own, now)


def refresh_after(nodes: int) -> float:
    """Seconds after which the times in a map of so many nodes are brought up to date.

    Each refresh costs every node a copy of the whole map, so large clusters do it more seldom: 0.3 s a node, from half a
    minute to five minutes.
    """
    return min(300.0, max(30.0, 0.3 * nodes))


def _current(own: ClusterIdentity) -> PublishedMap | None:
    """What is published, without its payload. A map of another store counts for nothing."""
    return PublishedMap.objects.defer("payload").filter(id=PublishedMap.ONLY, epoch=own.epoch).first()


def _aged(row: PublishedMap, fresh: ModuleMap, now: float) -> bool:
    return abs(now - unix(row.made_at)) >= refresh_after(len(fresh.nodes))


def published_version() -> str:
    """Version of the map that nodes should hold; empty before the first. One query."""
    row = PublishedMap.objects.filter(id=PublishedMap.ONLY).values_list("epoch", "counter").first()
    return f"{row[0]}:{row[1]}" if row else ""


def version_for(held: str, current: str) -> str:
    """The version that a node shall have, which says that it holds `held`.

    A later one of this very store than the store has published: the store was set back, by a restored copy or a standby
    that missed the last writes. From then on it counts under another name, for no node takes an older map of the same one.
    """
    epoch, _, count = held.rpartition(":")
    own, _, published = current.rpartition(":")
    if epoch != own or len(count) > 18 or not count.isdecimal() or int(count) <= int(published):
        return current
    identity.begin_epoch(after=own)
    return publish().version


_latest: tuple[str, bytes] = ("", b"")


def payload(version: str) -> tuple[str, bytes]:
    """The published map as JSON with its version: this one, or a newer one that came meanwhile.

    Remembered: most nodes want the same one at about the same time.
    """
    global _latest
    if _latest[0] != version:
        row = PublishedMap.objects.get(id=PublishedMap.ONLY)
        _latest = (row.version, row.payload.encode())
    return _latest


def current_map() -> ModuleMap:
    """The published map; published first where there is none."""
    _, content = payload(published_version() or publish().version)
    return from_dict(ModuleMap, orjson.loads(content))


def controllers(*, at_least: Sequence[ControllerAddress] = ()) -> tuple[ControllerAddress, ...]:
    """Where nodes may report: those that the map names, by name; `at_least` where it names none."""
    running = [node for node in current_map().running(Module.CONTROLLER) if node.address]
    return tuple(ControllerAddress(node_id=node.node_id, address=node.address) for node in running) or tuple(at_least)


def digest(module_map: ModuleMap) -> str:
    """Of everything that nodes act on: not the version, nor any time."""
    told: dict[str, Any] = to_dict(module_map)
    del told["version"], told["made_at"]
    for node in told["nodes"]:
        del node["last_seen_at"]
    return hashlib.sha256(orjson.dumps(told)).hexdigest()


def _compile(own: ClusterIdentity, now: float) -> ModuleMap:
    """The map of this moment, without its version. Three queries, however many nodes there are."""
    listening = selectors.listening_of(own)
    rows = Node.objects.filter(removed_at__isnull=True).order_by("name", "id").only(*_NODE_FIELDS)
    gone = Node.objects.filter(removed_at__isnull=False).order_by(F("removed_at").desc(), "id")
    # by its node too: one that is issued at the very moment of a removal is worth as little
    worthless = Certificate.objects.filter(
        Q(revoked_at__isnull=False) | Q(node__removed_at__isnull=False), expires_at__gt=from_unix(now)
    )
    return ModuleMap(
        version="",
        made_at=now,
        nodes=tuple(_node(row, selectors.node_state_of(row, listening, now)) for row in rows),
        revoked=tuple(worthless.order_by("serial").values_list("serial", flat=True)),
        removed=tuple(gone.values_list("id", flat=True)[:REMOVED_KEPT]),
    )


def _node(row: Node, state: str) -> MapNode:
    return MapNode(
        node_id=row.id,
        name=row.name,
        address=row.address,
        public_key=row.public_key,
        state=str(state),
        last_seen_at=unix(row.last_seen_at) if row.last_seen_at else None,
        modules=modules_of(row),
        maintenance=row.maintenance,
        maintenance_why=row.maintenance_why,
    )


def modules_of(row: Node) -> tuple[ModuleReport, ...]:
    """A node's modules as it last reported them. None before its first report. One that tells its roles knows modules."""
    if row.last_seen_at is None:
        return ()
    if not row.modules and not row.roles:
        return tuple(ModuleReport(name=name.value) for name in LEGACY_MODULES)
    return tuple(
        ModuleReport(name=item["name"], state=item["state"], code=item["code"], message=item["message"])
        for item in row.modules
    )


def kept(modules: Sequence[ModuleReport]) -> list[dict[str, str]]:
    """Reported modules as the row keeps them; what is too long or too many is cut."""
    return [
        {"name": item.name[:40], "state": item.state[:40], "code": item.code[:64], "message": item.message[:1000]}
        for item in modules[:MOST_MODULES]
    ]
