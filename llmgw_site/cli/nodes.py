"""`llmgw node list|show|join|token|remove|cordon|drain|uncordon|label|fabric`: machines of the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import (
    AsJson,
    CliError,
    Column,
    ExitCode,
    ago,
    api,
    part,
    print_json,
    show_item,
    show_list,
)
from llmgw_site.cli.join import join
from llmgw_site.cli.join_tokens import token
from llmgw_site.lib.units import format_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Machines of the cluster.")
Ref = Annotated[str, typer.Argument(metavar="NODE", help="Name or id.")]
Reason = Annotated[str, typer.Option(help="Why; shown beside the node.")]
Card = Annotated[str, typer.Option(help="UUID of a single card, instead of the whole node.")]


@app.command("list")
def list_nodes(as_json: AsJson = False) -> None:
    """List nodes with their state."""
    columns: list[Column] = [
        "name",
        "state",
        ("seen", lambda node: ago(node["last_seen_at"])),
        ("modules", modules),
        ("maintenance", maintenance),
        ("labels", labels),
        "address",
        ("memory free", memory),
        "replicas",
    ]
    show_list(api().all("nodes"), columns, as_json=as_json, empty="no nodes")


@app.command()
def show(node: Ref, as_json: AsJson = False) -> None:
    """Show one node."""
    found = api().get(f"nodes/{part(node)}")
    if as_json:
        print_json(found)
        return
    fields: list[Column] = [
        "id", "name", "state", ("maintenance", maintenance), "address", "version",
        ("seen", lambda row: ago(row["last_seen_at"])), ("modules", modules), ("own roles", lambda row: row["roles"]),
        ("roles by the setup", lambda row: row["assigned_roles"]), ("cores", lambda row: row["hardware"].get("cores")),
        ("memory free", memory), ("labels", labels), "fabric", ("engines", engines), "problems", "replicas", "snapshot_version", "spool_records",
    ]  # fmt: skip
    show_item(found, as_json=False, fields=fields)
    for waits in found["waiting_to_move"]:
        print(f"{waits['model']} cannot leave yet: {waits['message']}")
    if found["hardware"].get("cards"):
        show_list(
            cards(found),
            ["card", "name", "memory used", "others", "uuid", "maintenance", "problem"],
            as_json=False,
            empty="",
        )


app.command("join")(join)
app.command("token")(token)


@app.command()
def remove(node: Ref, reason: Annotated[str, typer.Option(help="Why; stands in the event.")] = "") -> None:
    """Take a node out of the cluster; its key is worth nothing from now on."""
    api().delete(f"nodes/{part(node)}" + (f"?reason={part(reason)}" if reason else ""))
    print(f"node {node} is out of the cluster")


@app.command()
def cordon(node: Ref, reason: Reason = "", card: Card = "", as_json: AsJson = False) -> None:
    """Place nothing new on a node or card; what runs there stays."""
    _maintain(
        node, "cordon", f"is cordoned: nothing new is placed on {'it' if card else 'the node'}", card, reason, as_json
    )


@app.command()
def drain(node: Ref, reason: Reason = "", card: Card = "", as_json: AsJson = False) -> None:
    """Empty a node or card: its replicas move first, then it is free."""
    _maintain(node, "drain", "is being drained: replicas move first, then it is empty", card, reason, as_json)


@app.command()
def uncordon(node: Ref, card: Card = "", as_json: AsJson = False) -> None:
    """Place replicas on a node or card again."""
    _maintain(node, "uncordon", "takes replicas again", card, "", as_json)


@app.command()
def label(
    node: Ref,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE|KEY-", help="A label to give, or one to take away.")],
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Give a node labels that profiles may ask for, or take some away (KEY-)."""
    changes: dict[str, str | None] = {}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals and not key.endswith("-"):
            raise CliError(ExitCode.USAGE, f"{text}: write KEY=VALUE to give a label, KEY- to take it away")
        changes[key if equals else key[:-1]] = value if equals else None
    answer = api().post(f"nodes/{part(node)}/label", {"labels": changes, "reason": reason})
    if as_json:
        print_json(answer)
        return
    print(
        f"node {node} has the labels {', '.join(labels(answer))}" if answer["labels"] else f"node {node} has no labels"
    )


@app.command()
def fabric(
    node: Ref,
    name: Annotated[str, typer.Argument(metavar="[FABRIC]", help="Name of the fast network; left out: none.")] = "",
    address: Annotated[
        str | None, typer.Option(metavar="IP", help="The node's IP address there; '': that of its node listener.")
    ] = None,
    reason: Reason = "",
    as_json: AsJson = False,
) -> None:
    """Say over which fast network a node can share a replica with others. Engines talk over it in the clear."""
    body = {"fabric": name, "reason": reason} | ({} if address is None else {"address": address})
    answer = api().post(f"nodes/{part(node)}/fabric", body)
    if as_json:
        print_json(answer)
        return
    print(f"node {node} is on fabric {name}" if name else f"node {node} is on no fabric")


def _maintain(node: str, verb: str, done: str, card: str, reason: str, as_json: bool) -> None:
    body = {name: text for name, text in (("reason", reason), ("card", card)) if text}
    answer = api().post(f"nodes/{part(node)}/{verb}", body)
    if as_json:
        print_json(answer)
        return
    print(f"card {card} of node {node} {done}" if card else f"node {node} {done}")


# --- cells


def modules(node: dict[str, Any]) -> list[str]:
    """Names of those that run; others with their state and why."""
    return [
        item["name"] if item["state"] == "running" else f"{item['name']} ({item['state']}{_code(item)})"
        for item in node["modules"]
    ]


def _code(module: dict[str, Any]) -> str:
    return f": {module['code']}" if module.get("code") else ""


def maintenance(node: dict[str, Any]) -> list[str]:
    """What is cordoned or drained, with the reason that was given; cards by their place among the node's."""
    told = [_told(node["maintenance"], node["maintenance_why"])] if node["maintenance"] else []
    places = {card["uuid"]: number for number, card in enumerate(node["hardware"].get("cards", ()))}
    for uuid, item in sorted(node["cards_maintenance"].items(), key=lambda pair: places.get(pair[0], len(places))):
        told.append(f"card {places.get(uuid, uuid)} {_told(item['state'], item['why'])}")
    return told


def _told(state: str, why: str) -> str:
    return f"{state}: {why}" if why else state


def labels(node: dict[str, Any]) -> list[str]:
    return [f"{name}={value}" for name, value in sorted(node["labels"].items())]


def memory(node: dict[str, Any]) -> str | None:
    """Free of total, as last reported."""
    total = node["hardware"].get("memory_total")
    return f"{format_bytes(node['hardware'].get('memory_available', 0))} of {format_bytes(total)}" if total else None


def cards(node: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each accelerator, as last reported."""
    kept = node["cards_maintenance"]
    return [
        {
            "card": number,
            "name": card.get("name"),
            "memory used": _used(card.get("memory_used"), card.get("memory_total")),
            "others": format_bytes(card["memory_foreign"]) if card.get("memory_foreign") else None,
            "problem": card.get("problem") or None,
            "uuid": card["uuid"],
            "maintenance": _told(kept[card["uuid"]]["state"], kept[card["uuid"]]["why"])
            if card["uuid"] in kept
            else None,
        }
        for number, card in enumerate(node["hardware"].get("cards", ()))
    ]


def _used(used: int | None, total: int | None) -> str | None:
    if total is None:
        return None
    return format_bytes(total) if used is None else f"{format_bytes(used)} of {format_bytes(total)}"


def engines(node: dict[str, Any]) -> list[str]:
    return [f"{item['kind']} {item.get('problem') or item.get('version') or ''}".strip() for item in node["engines"]]
