"""`llmgw token`: tokens of the admin API."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, ago, api, show_list
from llmgw_site.cli.secrets import find_live, show_new, state

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Admin tokens: they act as a user, with the user's permissions."
)

COLUMNS: tuple[Column, ...] = (
    "name", "prefix", "user", ("state", state), ("made", lambda row: ago(row["created_at"])), "expires_at",
    ("used", lambda row: ago(row["last_used_at"])), "id",
)  # fmt: skip


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    user: Annotated[str, typer.Option(help="Another user, if you may; left out: yourself.")] = "",
    days: Annotated[float, typer.Option(min=0.0001, help="How long it is valid.")] = 90.0,
    as_json: AsJson = False,
) -> None:
    """Make an admin token and show it, this once."""
    body: dict[str, Any] = {"name": name, "days": days}
    if user:
        body["user"] = user
    row = api().post("tokens", body)
    show_new(row, row["token"], as_json=as_json)


@app.command("list")
def list_tokens(
    everything: Annotated[bool, typer.Option("--all", help="Revoked ones too.")] = False, as_json: AsJson = False
) -> None:
    """Your tokens; everybody's, if you manage them."""
    rows = api().all("tokens", active=None if everything else "true")
    show_list(rows, COLUMNS, as_json=as_json, empty="No tokens: make one with `llmgw token create`.")


@app.command()
def revoke(token: Annotated[str, typer.Argument(metavar="TOKEN", help="Its name, id or first 15 characters.")]) -> None:
    """Refuse an admin token from now on."""
    client = api()
    row = find_live(client, "tokens", token, noun="token")
    client.delete(f"tokens/{row['id']}")
    print(f"Revoked {row['name']} ({row['prefix']}…).")
