"""`llmgw key`: keys of the OpenAI endpoint."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, ago, api, show_list
from llmgw_site.cli.secrets import find_live, show_new, state

app = typer.Typer(no_args_is_help=True, add_completion=False, help="API keys of the OpenAI endpoint.")

COLUMNS: tuple[Column, ...] = (
    "name", ("prefix", lambda row: texts(row)), ("project", lambda row: row["project_name"]), "user", ("state", state),
    ("models", lambda row: "all" if row["models"] is None else row["models"]),
    ("made", lambda row: ago(row["created_at"])), ("used", lambda row: ago(row["last_used_at"])), "id",
)  # fmt: skip


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    project: Annotated[
        str, typer.Option(help="Project (name, TEAM/NAME or id); may be left out where there is one.")
    ] = "",
    model: Annotated[list[str] | None, typer.Option(help="Model it may use; may be repeated; left out: all.")] = None,
    days: Annotated[float | None, typer.Option(min=0.0001, help="How long it is valid; left out: for ever.")] = None,
    user: Annotated[str, typer.Option(help="Name of the user whose key it is; left out: the project's.")] = "",
    priority: Annotated[
        int, typer.Option(min=-2, max=2, help="Where requests wait for room; each step has four times the share.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Make a key and show it, this once."""
    body: dict[str, Any] = {"name": name, "models": model or None}
    if priority:
        body["priority"] = priority
    if project:
        body["project"] = project
    if user:
        body["user"] = user
    if days is not None:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    row = api().post("keys", body)
    show_new(row, row["key"], as_json=as_json)


@app.command("list")
def list_keys(
    everything: Annotated[bool, typer.Option("--all", help="Revoked ones too.")] = False, as_json: AsJson = False
) -> None:
    """Keys that were not revoked."""
    rows = api().all("keys", active=None if everything else "true")
    show_list(rows, COLUMNS, as_json=as_json, empty="No keys yet: make one with `llmgw key create`.")


@app.command()
def rotate(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Its name, id or first 15 characters.")],
    hours: Annotated[
        float, typer.Option("--grace-hours", min=0, help="How long the present text stays valid; 0: it ends now.")
    ],
    why: Annotated[str, typer.Option(help="Reason, kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Give a key another text, shown this once. It stays one key: the present text opens the same until its time is over."""
    client = api()
    row = find_live(client, "keys", key, noun="key")
    made = client.post(f"keys/{row['id']}/rotate", {"grace": hours * 3600, "why": why})
    show_new(made, made["key"], as_json=as_json)


def texts(row: dict[str, Any]) -> list[str]:
    """The beginnings of what opens it: the former text, too, while it does."""
    until = row["former_until"]
    former = [row["former_prefix"]] if until and datetime.fromisoformat(until) > datetime.now(UTC) else []
    return [row["prefix"], *former]


@app.command()
def revoke(key: Annotated[str, typer.Argument(metavar="KEY", help="Its name, id or first 15 characters.")]) -> None:
    """Refuse a key from now on."""
    client = api()
    row = find_live(client, "keys", key, noun="key")
    client.delete(f"keys/{row['id']}")
    print(f"Revoked {row['name']} ({row['prefix']}…).")
