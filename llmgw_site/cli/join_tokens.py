"""`llmgw node token`: tokens that let machines into the cluster."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, ago, api, part, print_json, show_list
from llmgw_site.lib.addresses import unreachable_controller


def token(
    uses: Annotated[int, typer.Option(min=1, help="How many machines may join with it.")] = 1,
    hours: Annotated[float, typer.Option(min=0.01, help="How long it is valid.")] = 24.0,
    listed: Annotated[bool, typer.Option("--list", help="Show the tokens there are, instead of making one.")] = False,
    revoke: Annotated[str, typer.Option(metavar="ID", help="Make a token worthless, instead of making one.")] = "",
    as_json: AsJson = False,
) -> None:
    """Make a join token and print the one command that the new machine runs."""
    if revoke:
        api().delete(f"join-tokens/{part(revoke)}")
        print(f"join token {revoke} is worth nothing from now on")
    elif listed:
        show_list(
            api().all("join-tokens"), COLUMNS, as_json=as_json, empty="No join tokens: `llmgw node token` makes one."
        )
    else:
        _make(uses, hours, as_json)


def _make(uses: int, hours: float, as_json: bool) -> None:
    """The command alone on standard output, so that a script can take it; everything else on standard error."""
    made = api().post("join-tokens", {"uses": uses, "hours": hours})
    if as_json:
        print_json(made)
        return
    machines = "one machine" if uses == 1 else f"{uses} machines"
    print("Run this on the new machine, as the user that llmgw shall run as, with .venv/bin of its checkout on the PATH. "
          f"It lets {machines} in until {made['expires_at'][:16].replace('T', ' ')} UTC and is shown this once:",
          file=sys.stderr)  # fmt: skip
    print(made["command"])
    print(
        "It joins and starts llmgw there. `llmgw node list` shows the machine, `llmgw node token --list` the tokens.",
        file=sys.stderr,
    )
    hidden = unreachable_controller(made["command"])
    if hidden:
        print(
            f"\nWarning: this controller advertises {hidden}, which no other machine can reach. Set LLMGW_NODE_HOST (such "
            "as 0.0.0.0) and LLMGW_NODE_ADDRESS (such as http://10.0.0.5:8880) here, start llmgw anew, and make a new token.",
            file=sys.stderr,
        )


def state(row: dict[str, Any]) -> str:
    """open, used up, revoked or expired."""
    if row["revoked_at"]:
        return "revoked"
    if row["uses"] >= row["uses_allowed"]:
        return "used up"
    return "expired" if datetime.fromisoformat(row["expires_at"]) <= datetime.now(UTC) else "open"


COLUMNS: tuple[Column, ...] = (
    "id", ("state", state), ("used", lambda row: f"{row['uses']} of {row['uses_allowed']}"), "expires_at",
    ("made", lambda row: ago(row["created_at"])), ("by", lambda row: row["created_by"]),
)  # fmt: skip
