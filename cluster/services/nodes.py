"""Nodes: enrolment, removal, heartbeats. What a node reports is written here and nowhere else."""

from __future__ import annotations

import secrets
import socket
from dataclasses import replace
from typing import Any

import orjson
from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from catalog.services import events
from cluster import selectors, signals
from cluster.domain import setup as setup_rules
from cluster.domain import signing
from cluster.domain.joining import is_address
from cluster.domain.states import REPLICA_REPORTED, ReplicaState
from cluster.models import Node, Replica
from cluster.selectors import from_unix, mirror, unix
from cluster.services import authority, equipment, fetch_reports, hearing, identity, members, parts, setup
from cluster.services.locks import plan_lock
from cluster.services.reported import LONGEST_TEXT, NOTHING, count, observed, proven
from cluster.wire import Heartbeat, ReplicaReport, Wanted, WeightsReport, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused

EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 - asks, binds nothing
_MOST, _MOST_CARDS = 32, 256
"""Sentences and cards that are kept of a report: pages and decisions read all of them."""
_MOST_WEIGHTS, _PATH = 4096, 1024
"""Weights that are kept of a report, and characters of a path: what goes beyond stays unknown."""


def enrol(*, name: str, public_key: str, address: str, actor: str, node_id: str = "") -> Node:
    """Take a machine into the cluster.

    Raises Refused: `bad_public_key`; `node_exists` where its name or key is a node's; `node_removed` where its key is that
    of one that was taken out.
    """
    try:
        if len(public_key) != 64:
            raise ValueError
        signing.pairwise_key(secrets.token_hex(32), public_key)  # some 32 bytes are no key that can be agreed with
    except ValueError:
        raise Refused(
            Kind.INVALID,
            "bad_public_key",
            "a node's public key is an X25519 key of 64 hex digits: give what the node made",
            param="public_key",
        ) from None
    try:
        with transaction.atomic():
            node = Node(name=name, public_key=public_key.lower(), address=address)
            node.id = node_id or node.id
            node.save(force_insert=True)
            events.append(
                actor=actor,
                kind="node_enrolled",
                subject_kind="node",
                subject_id=node.id,
                message=f"node {name} joined the cluster",
                after={"name": name, "address": address},
            )
            transaction.on_commit(lambda: signals.members_changed.send_robust(sender=Node, removed=()))
    except IntegrityError:
        former = Node.objects.filter(public_key=public_key.lower(), removed_at__isnull=False).first()
        if former is not None:
            raise removed(former) from None
        raise Refused(
            Kind.CONFLICT,
            "node_exists",
            f"a node with the name {name!r} or with this key is in the cluster: remove it first, or choose another name (--name)",
            param="name",
        ) from None
    return node


def enrol_local(config: Config) -> Node:
    """This machine as a node of its own cluster: keeps `config.node_file` if it belongs here, else makes it anew.

    1. the file names a node of this database, with its key and the controllers' key: nothing to do
    2. the file has a key that this database does not know (fresh database): that key is enrolled again
    3. there is no file, or it is unreadable, or its node was removed: new key, new node. A node of the same name whose
       key is lost is removed first: it cannot come back
    """
    own = identity.ensure_identity()
    kept = files.read_json(config.node_file) or {}
    private = _key_in(kept)
    known = Node.objects.filter(public_key=signing.public_hex(private)).first() if private else None
    if known is not None and known.removed_at is None:  # 1
        node = known
    else:
        if not private or known is not None:  # 3
            private = secrets.token_hex(32)
        name = config.node_name or socket.gethostname()
        actor = "bootstrap"
        for old in Node.objects.filter(name=name, removed_at__isnull=True):
            _take_out(node_id=old.id, actor=actor, why="this machine has a new key")
        bound = "" if config.node_host in EVERY_ADDRESS else f"http://{config.node_host}:{config.node_port}"
        address = config.node_address or bound  # empty: its first heartbeat says it
        node = enrol(name=name, public_key=signing.public_hex(private), address=address, actor=actor)  # 2
    wanted = {"node_id": node.id, "private_key": private, "controller_public_key": own.public_key}
    if not (isinstance(kept, dict) and wanted.items() <= kept.items()):
        files.private_folder(config.node_file.parent)
        files.write_json(config.node_file, wanted, mode=0o600)
    authority.keep_local(config, node, now=selectors.database_now())
    return node


def _key_in(kept: Any) -> str:
    """The private key in what a node file holds; empty where there is none, or what stands there is none."""
    private = kept.get("private_key") if isinstance(kept, dict) else None
    try:
        return private if isinstance(private, str) and signing.public_hex(private) else ""
    except ValueError:
        return ""


def remove(*, node_id: str, actor: str, why: str = "") -> Node:
    """Take a node out. From this moment its key and its certificates are worth nothing, here at once and elsewhere as soon
    as the map says so; the reconciler forgets its replicas. The only controller that works is refused: nobody could
    change anything any more. One at a time, so that of the last two that are taken out at once one stays."""
    with plan_lock():
        setup_rules.check_removal(node_id, selectors.setup_nodes())
        return _take_out(node_id=node_id, actor=actor, why=why)


def _take_out(*, node_id: str, actor: str, why: str) -> Node:
    with transaction.atomic():
        if not Node.objects.filter(id=node_id, removed_at__isnull=True).update(removed_at=Now()):
            raise Refused(Kind.NOT_FOUND, "node_unknown", f"there is no node {node_id} in the cluster")
        node = Node.objects.get(id=node_id)
        authority.revoke(node)
        events.append(
            actor=actor,
            kind="node_removed",
            subject_kind="node",
            subject_id=node.id,
            message=f"node {node.name} was removed from the cluster",
            before={"name": node.name, "address": node.address},
            why=why,
        )
        transaction.on_commit(lambda: signals.members_changed.send_robust(sender=Node, removed=(node.id,)))
        transaction.on_commit(lambda: signals.plan_applied.send_robust(sender=Node))
    return node


def heartbeat(*, node: Node, beat: Heartbeat, now: float, call: signing.Call | None = None) -> Wanted:
    """`observe`, and its outcome as the answer to a heartbeat."""
    rows = observe(node=node, beat=beat, now=now, call=call)
    orders = mirror.orders_for(node, rows, mark=mirror.versions_mark(), now=now)
    return Wanted(
        server_time=now,
        replicas=selectors.wanted_of(rows),
        roles=setup.roles_for(node),
        weights_mark=node.weights_mark,
        fetches=orders.fetches,
        kept=orders.kept,
        removed=orders.removed,
    )


def observe(
    *, node: Node, beat: Heartbeat, now: float, call: signing.Call | None = None, heard_at: float | None = None
) -> list[Replica]:
    """Write what the node sees; its replicas as they stand then. Costs the same few queries however much is said.

    `now`: Unix time of the database. `node`: its row as it was read for this call. `call`: the signed call that brought
    it; one that is older than the last of this node is refused (`call_repeated`), whichever controller took that.
    `heard_at`: when controllers last noted that they hear nodes, where that is known.
    Only replicas whose report differs from their row are written, each by a conditional update of its own, so that a
    report about an older generation never overwrites a newer one, and no order of locks can meet another's.
    """
    fields = _node_fields(beat, call)
    fetches = fetch_reports.kept(node.fetches, beat.fetches, now)
    if fetches != node.fetches:
        fields["fetches"] = fetches
    told = weights = fields.get("weights_mark", node.weights_mark) != node.weights_mark
    if not _write_node(node, fields, call, now):
        raise _older(node)
    if weights:
        mirror.news()
    told |= equipment.differs(beat) or _was_away(node, now) or node.modules != fields["modules"]
    if node.last_seen_at is None or any(getattr(node, name) != fields.get(name, node.address) for name in _IN_MAP):
        transaction.on_commit(lambda: signals.members_changed.send_robust(sender=Node, removed=()))
    for name, value in {**fields, "last_seen_at": from_unix(now)}.items():
        setattr(node, name, value)
    rows = list(Replica.objects.raw("SELECT * FROM cluster_replica WHERE node_id = %s ORDER BY id", [node.id]))
    reports = {report.replica_id: report for report in beat.replicas}
    if node.fabric:  # else it has no part of one over several nodes
        rows = [row for row in rows if not selectors.parts.spans(row)]
    news = [row for row in rows if _observe(row, reports.get(row.id), node, now)]
    if node.fabric:
        said = {key: (report, observed(report)) for key, report in reports.items()}
        shared = parts.observe(node=node, said=said, now=now)
        rows += shared.rows
        news += shared.news
    if news or told:
        transaction.on_commit(lambda: signals.observed.send_robust(sender=Node, node_id=node.id, weights=weights))
    if hearing.working():
        identity.listened(now=now, last=heard_at)
    return rows


def _was_away(node: Node, now: float) -> bool:
    """Whether a node is heard for the first time, or again after a silence in which nothing was placed there."""
    return node.last_seen_at is None or now - unix(node.last_seen_at) > settings.CONFIG.stale_after


_IN_MAP = ("address", "modules")
"""What the module map says of a node, of all that it reports."""


def _write_node(node: Node, fields: dict[str, Any], call: signing.Call | None, now: float) -> bool:
    """Write these fields to the row of a node that is in the cluster, if this call is later than the last one taken.

    Each process remembers the calls that it answered, but there are several controllers.
    1. of the same boot: by its counter
    2. of another boot: by its time, for the calls of an earlier boot are older than what came since. One of the same
       millisecond counts as later: a call's time is rounded to it
    3. the same where the database's clock was set back, seen by a row that was of the future when it was read and still is
    Written without the ORM's work: every heartbeat comes through here.
    """
    names = list(fields)
    values = [_json(value) if isinstance(value, (dict, list)) else value for value in fields.values()]
    sql = f"UPDATE cluster_node SET last_seen_at = %s, {', '.join(f'{name} = %s' for name in names)} "  # noqa: S608
    sql += "WHERE id = %s AND removed_at IS NULL"
    params = [_column(now), *values, node.id]
    if call is not None:
        sql += (
            " AND ((boot_id = %s AND (call_counter IS NULL OR call_counter < %s))"  # 1
            " OR (boot_id <> %s AND (last_seen_at IS NULL OR last_seen_at < %s"  # 2
            " OR last_seen_at > %s)))"  # 3
        )
        boot, seen = call.boot[:64], unix(node.last_seen_at) if node.last_seen_at else 0.0
        future = max(now, seen - signing.TIME_STEP) if seen > now else None
        params += [boot, call.counter, boot, _column(call.time + signing.TIME_STEP), _column(future)]
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        return bool(cursor.rowcount)


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


def _column(seconds: float | None) -> Any:
    """Unix time as the database keeps it."""
    return connection.ops.adapt_datetimefield_value(None if seconds is None else from_unix(seconds))


def _older(node: Node) -> Refused:
    if Node.objects.filter(id=node.id, removed_at__isnull=False).exists():
        return removed(node)
    text = f"node {node.name} has reported since: this is an old call, or a copy of one"
    return Refused(Kind.UNAUTHORIZED, "call_repeated", text)


def removed(node: Node) -> Refused:
    """What a node is told that was taken out."""
    text = f"node {node.name} was removed from this cluster: let it join again with a new token"
    return Refused(Kind.UNAUTHORIZED, "node_removed", text)


def _node_fields(beat: Heartbeat, call: signing.Call | None) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "boot_id": (call.boot if call else beat.boot_id)[:64],
        "call_counter": call.counter if call else None,
        "version": beat.version[:40],
        "problems": [text[:LONGEST_TEXT] for text in beat.problems[:_MOST]],
        "snapshot_version": beat.snapshot_version[:100],
        "spool_records": count(beat.spool_records),
        "modules": members.kept(beat.modules),
        "roles": [role[:40] for role in beat.roles[: members.MOST_MODULES]],
        "map_version": beat.map_version[:100],
    }
    if beat.hardware.cores:  # else its agent has just begun and read nothing yet: what it said before is true still
        fields["hardware"] = to_dict(replace(beat.hardware, cards=beat.hardware.cards[:_MOST_CARDS]))
        del fields["hardware"]["v"]
        fields["engines"] = [
            {
                "kind": item.kind[:40],
                "version": item.version[:LONGEST_TEXT],
                "problem": item.problem[:LONGEST_TEXT],
                **({"spans": True} if item.spans else {}),
                **({"architectures": [name[:64] for name in item.architectures[:1000]]} if item.architectures else {}),
            }
            for item in beat.engines[:_MOST]
        ]
    if beat.weights_mark is None:
        fields["weights_mark"] = ""
    elif beat.weights_mark and beat.weights is not None:
        fields |= {"weights": _weights(beat.weights), "weights_mark": beat.weights_mark[:64]}
    if is_address(beat.address):
        fields["address"] = beat.address.rstrip("/")
    elif beat.address:  # what it said before is better than what nobody can call, and pages show it
        text = (
            f"it reports {beat.address[:100]!r}, which is no address of a node listener: set LLMGW_NODE_ADDRESS there"
        )
        fields["problems"].append(text)
    return fields


def _weights(told: tuple[WeightsReport, ...]) -> list[dict[str, Any]]:
    return [
        {"path": item.path, "size": count(item.size, most=2**63 - 1), "folder": item.folder}
        for item in told[:_MOST_WEIGHTS]
        if len(item.path) <= _PATH
    ]


def _observe(row: Replica, report: ReplicaReport | None, node: Node, now: float) -> bool:
    """Bring one row up to date. True if its state or reason is new.

    1. reported at its generation: as reported
    2. reported at an older one: the node has not begun with the new one; nothing is known of it
    3. not reported: nothing of it is there, so it has stopped if it shall not run, and is to come if it shall
    """
    if report is not None and report.generation == row.generation and report.state in REPLICA_REPORTED:  # 1
        fields = {**observed(report), "proven": proven(report, row)}
    elif report is not None:  # 2
        return False
    else:  # 3
        state = ReplicaState.PENDING if row.run else ReplicaState.STOPPED
        if row.state == state:
            return False
        fields = {**NOTHING, "state": state.value}
    changed = {name: value for name, value in fields.items() if getattr(row, name) != value}
    if not changed:
        return False
    if changed.keys() <= set(_LOAD):
        _write_load(row, {name: changed.get(name, getattr(row, name)) for name in _LOAD})
        return False
    # how far its weights are is said anew each time, and moves nobody
    news = bool(
        changed.keys() & ({"state", "code"} if row.state == ReplicaState.FETCHING else {"state", "code", "message"})
    )
    if "state" in changed:
        changed["state_since"] = from_unix(now)
    current = Replica.objects.filter(id=row.id, generation=row.generation, run=row.run, state=row.state)
    with transaction.atomic():
        if not current.update(**changed):
            return False  # somebody was faster; the next heartbeat says it again
        if changed.get("state") in _TOLD:
            _tell(row, node, fields)
    for name, value in changed.items():
        setattr(row, name, value)
    return news


_LOAD = ("in_flight", "waiting", "last_used_at", "memory", "cpu")
"""What of a busy replica differs in every report."""


def _write_load(row: Replica, load: dict[str, Any]) -> None:
    """The same conditional update, without the ORM's work: most of what heartbeats write is this."""
    seen = connection.ops.adapt_datetimefield_value(load["last_used_at"])
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE cluster_replica SET in_flight = %s, waiting = %s, last_used_at = %s, memory = %s, cpu = %s "
            "WHERE id = %s AND generation = %s AND run = %s AND state = %s",
            [
                load["in_flight"],
                load["waiting"],
                seen,
                load["memory"],
                load["cpu"],
                row.id,
                row.generation,
                row.run,
                row.state,
            ],
        )
    for name, value in load.items():
        setattr(row, name, value)


_TOLD = frozenset({ReplicaState.READY, ReplicaState.BACKOFF, ReplicaState.FAILED})
"""States whose beginning is worth an event."""


def _tell(row: Replica, node: Node, fields: dict[str, Any]) -> None:
    """An event about a replica that became ready or failed. It stands under the node's name: the node saw it."""
    state = str(fields["state"])
    failed = "failed" if row.state == ReplicaState.READY else "failed to start"
    became = "is ready" if state == ReplicaState.READY else failed
    events.append(
        actor=f"node:{node.name}",
        kind=f"replica_{'ready' if state == ReplicaState.READY else 'failed'}",
        subject_kind="replica",
        subject_id=row.id,
        about=row.model_id,
        message=f"a replica {became} on node {node.name} (start {fields.get('attempt', 1)})",
        before={"state": row.state},
        after={"state": state, "code": fields.get("code", "")},
        why=str(fields.get("message", "")),
    )
