"""`llmgw role`: who is admin, operator or viewer, of the cluster or of a scope."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli import scopes
from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, api, print_json, show_list

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Roles of users: admin, operator, viewer.")

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
Of = Annotated[
    str,
    typer.Option(
        "--of",
        metavar="SCOPE",
        help="Organisation, team or project (name, TEAM/PROJECT, team:NAME, id); left out: the cluster.",
    ),
]
COLUMNS: tuple[Column, ...] = (
    "user", "role", ("of", lambda row: "the cluster" if row["scope"] is None else f"{row['kind']} {row['scope_name']}"),
    ("given by", lambda row: row["source"] or row["created_by"]), "id",
)  # fmt: skip


@app.command("list")
def list_roles(as_json: AsJson = False) -> None:
    """Who has which role."""
    show_list(
        api().all("roles"), COLUMNS, as_json=as_json, empty="Nobody has a role yet: give one with `llmgw role give`."
    )


@app.command()
def give(
    user: User,
    role: Annotated[str, typer.Argument(help="admin, operator or viewer.")],
    of: Of = "",
    why: Annotated[str, typer.Option(help="Reason, kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Give a user a role, in place of the one of the same scope. Whoever has a role may open the console."""
    row = api().post("roles", {"user": user, "role": role, "scope": of or None, "why": why})
    print_json(row) if as_json else print(f"{row['user']} is {row['role']} of {_of(row)}.")


@app.command()
def take(user: User, of: Of = "") -> None:
    """Take a role from a user."""
    client = api()
    if "/" in of:
        of = scopes.find(client, of)["id"]
    kind, colon, name = of.rpartition(":")
    rows = [row for row in client.all("roles") if row["user"] == user]
    found = [row for row in rows if _is(row, kind if colon else "", name)]
    if len(found) != 1:
        told = ", ".join(f"{row['role']} of {_of(row)}" for row in rows) or "none"
        raise CliError(ExitCode.NOT_FOUND, f"{user} has not one such role; there are: {told}")
    client.delete(f"roles/{found[0]['id']}")
    print(f"{user} is not {found[0]['role']} of {_of(found[0])} any more.")


def _is(row: dict[str, Any], kind: str, name: str) -> bool:
    if not name:
        return row["scope"] is None
    return name in (row["scope"], row["scope_name"]) and kind in ("", row["kind"])


def _of(row: dict[str, Any]) -> str:
    return "the cluster" if row["scope"] is None else f"the {row['kind']} {row['scope_name']}"
