"""`llmgw budget`: what keys, projects, teams and organisations may cost in a day or a month."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, api, part, print_json, show_list

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="What keys, projects, teams and organisations may cost. A request counts for each of them.",
)

Ref = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="Name or id of an organisation, team, project or key; where names repeat TEAM/PROJECT, team:NAME, key:NAME.",
    ),
]
Each = Annotated[str, typer.Option("--each", metavar="PERIOD", help="day or month.")]


def money(text: str) -> str:
    """An amount to the cent, and exactly where that would hide something."""
    whole, _, rest = text.partition(".")
    return f"{whole}.{rest.rstrip('0'):0<2}"


COLUMNS: tuple[Column, ...] = (
    ("budget of", lambda row: " / ".join(row["path"])), "kind", ("each", lambda row: row["period"]),
    ("spent", lambda row: money(row["spent"])), ("of", lambda row: f"{money(row['amount'])} {row['currency']}"),
    ("stands", lambda row: {"ok": "ok", "warned": "nearly spent", "spent": "spent"}[row["standing"]]),
    ("then", lambda row: "refused" if row["hard"] else "told only"), ("begins anew", lambda row: f"{row['resets_at']} ({row['zone']})"),
)  # fmt: skip


@app.command("list")
def list_budgets(as_json: AsJson = False) -> None:
    """What has a budget, with what is spent of it."""
    show_list(api().all("budgets"), COLUMNS, as_json=as_json, empty="No budgets yet: set one with `llmgw budget set`.")


@app.command("set")
def set_budget(
    scope: Ref,
    amount: Annotated[str, typer.Option(help="For each period, in the server's currency; needed of a new one.")] = "",
    each: Each = "month",
    zone: Annotated[str, typer.Option(help="Time zone whose midnight it begins anew at, such as Europe/Berlin.")] = "",
    hard: Annotated[
        bool | None, typer.Option("--hard/--soft", help="Refuse what costs something once it is spent, or tell only.")
    ] = None,
    warn_at: Annotated[str, typer.Option(help="Share at which it is told first, such as 0.8, or none.")] = "",
    why: Annotated[str, typer.Option(help="Reason, kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Set a budget; of one that is there, what is left out stays."""
    body: dict[str, Any] = {"amount": amount or None, "zone": zone or None, "hard": hard, "why": why or None}
    body = {name: value for name, value in body.items() if value is not None}
    if warn_at:
        try:
            body["warn_at"] = None if warn_at == "none" else float(warn_at)
        except ValueError:
            raise CliError(ExitCode.USAGE, f"--warn-at {warn_at}: write a share such as 0.8, or none") from None
    row = api().put(f"budgets/{part(scope)}/{part(each)}", body)
    if as_json:
        print_json(row)
        return
    then = "then what costs something is refused" if row["hard"] else "then it is told only"
    print(f"The {row['kind']} {row['name']}: {money(row['amount'])} {row['currency']} a {row['period']}, {then}.")


@app.command()
def remove(scope: Ref, each: Each = "month") -> None:
    """Bound it no longer."""
    api().delete(f"budgets/{part(scope)}/{part(each)}")
    print(f"The budget of {scope} a {each} is removed.")
