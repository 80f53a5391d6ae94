"""`llmgw node list|show|remove`: machines of the cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, ago, api, part, show_item, show_list
from llmgw_site.lib.units import format_bytes

app = typer.Typer(no_args_is_help=True, help="Machines of the cluster.")
Ref = Annotated[str, typer.Argument(metavar="NODE", help="Name or id.")]


@app.command("list")
def list_nodes(as_json: AsJson = False) -> None:
    """List nodes with their state."""
    columns: list[Column] = [
        "name",
        "state",
        ("seen", lambda node: ago(node["last_seen_at"])),
        ("memory free", memory),
        "replicas",
        "version",
    ]
    show_list(api().all("nodes"), columns, as_json=as_json, empty="no nodes")


@app.command()
def show(node: Ref, as_json: AsJson = False) -> None:
    """Show one node."""
    found = api().get(f"nodes/{part(node)}")
    fields: list[Column] = [
        "id", "name", "state", "address", "version", ("seen", lambda row: ago(row["last_seen_at"])),
        ("cores", lambda row: row["hardware"].get("cores")), ("memory free", memory), ("engines", engines), "problems",
        "replicas", "snapshot_version", "spool_records",
    ]  # fmt: skip
    show_item(found, as_json=as_json, fields=fields)


@app.command()
def remove(node: Ref) -> None:
    """Take a node out of the cluster; its key is worth nothing from now on."""
    api().delete(f"nodes/{part(node)}")
    print(f"node {node} is out of the cluster")


def memory(node: dict[str, Any]) -> str | None:
    """Free of total, as last reported."""
    total = node["hardware"].get("memory_total")
    return f"{format_bytes(node['hardware'].get('memory_available', 0))} of {format_bytes(total)}" if total else None


def engines(node: dict[str, Any]) -> list[str]:
    return [f"{item['kind']} {item.get('problem') or item.get('version') or ''}".strip() for item in node["engines"]]
