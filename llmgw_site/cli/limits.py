"""`llmgw limit`: requests and tokens a minute, and requests at a time, of keys, projects, teams and organisations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, api, part, print_json, show_list

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="How much of the endpoint keys, projects, teams and organisations may use. A request counts for each of them.",
)

Ref = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="Name or id of an organisation, team, project or key; where names repeat TEAM/PROJECT, team:NAME, key:NAME.",
    ),
]
FIGURES = {
    "requests_per_minute": "requests a minute",
    "tokens_per_minute": "tokens a minute",
    "parallel": "at a time",
}


def _cell(name: str) -> Any:
    return lambda row: "" if row[name] is None else row[name]


COLUMNS: tuple[Column, ...] = (
    ("limited", lambda row: " / ".join(row["path"])), "kind", ("requests/min", _cell("requests_per_minute")),
    ("tokens/min", _cell("tokens_per_minute")), ("parallel", _cell("parallel")),
)  # fmt: skip


@app.command("list")
def list_limits(as_json: AsJson = False) -> None:
    """What has a limit, in the order of the tree."""
    rows = api().all("limits")
    show_list(rows, COLUMNS, as_json=as_json, empty="No limits yet: set one with `llmgw limit set`.")


@app.command("set")
def set_limit(
    scope: Ref,
    requests: Annotated[int | None, typer.Option(min=0, help="Requests a minute.")] = None,
    tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens a minute, of requests and answers together.")
    ] = None,
    parallel: Annotated[int | None, typer.Option(min=0, help="Requests at a time.")] = None,
    why: Annotated[str, typer.Option(help="Reason, kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Set a limit, in place of the one there may be. What is left out is not limited."""
    body = {"requests_per_minute": requests, "tokens_per_minute": tokens, "parallel": parallel, "why": why}
    row = api().put(f"limits/{part(scope)}", body)
    if as_json:
        print_json(row)
        return
    told = [f"{row[name]} {words}" for name, words in FIGURES.items() if row[name] is not None]
    print(f"The {row['kind']} {row['name']}: at most {', '.join(told)}.")


@app.command()
def remove(scope: Ref) -> None:
    """Limit it no longer."""
    api().delete(f"limits/{part(scope)}")
    print(f"The limit of {scope} is removed.")
