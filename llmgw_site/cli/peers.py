"""`llmgw peers`: the nodes that a node forwards each model to."""

from __future__ import annotations

from typing import Annotated

import typer

from llmgw_site.cli.client import AsJson, Column, api, show_list
from llmgw_site.lib.units import format_seconds

app = typer.Typer(no_args_is_help=False, add_completion=False, help="The nodes that models are forwarded to.")

COLUMNS: tuple[Column, ...] = (
    "model", "node", ("serving", lambda row: row["serving_state"]), "in_flight",
    ("answers in", lambda row: _span(row["answer_s"])), ("down for", lambda row: _span(row["down_for_s"])),
)  # fmt: skip


@app.command()
def peers(
    model: Annotated[str, typer.Option(help="This model only.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show the nodes that the node at LLMGW_URL forwards each model to, and how they stand."""
    rows = api().get("cloud/peers", model=model or None)
    empty = f"no other node serves {model or 'a model'}"
    show_list(rows, COLUMNS, as_json=as_json, empty=empty)


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else format_seconds(seconds)
