"""`llmgw usage`: what was asked, and what it cost, from the sums that the controllers keep by day."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, api, print_json, show_list
from llmgw_site.lib.units import format_money

app = typer.Typer(no_args_is_help=False, add_completion=False, help="What was asked, and what it cost.")

BY = ("day", "month", "key", "model", "served", "target", "project", "team", "organisation")


@app.command()
def usage(
    by: Annotated[list[str] | None, typer.Option(metavar="WHAT", help=f"{', '.join(BY)}; may be repeated; left out: model.")] = None,
    since: Annotated[str, typer.Option(metavar="DAY", help="First day, of UTC; left out: 30 days before the last.")] = "",
    until: Annotated[str, typer.Option(metavar="DAY", help="The day after the last one; left out: tomorrow.")] = "",
    model: Annotated[str, typer.Option(help="Only requests for this model.")] = "",
    key: Annotated[str, typer.Option(metavar="KEY", help="Only with this key, by name or id.")] = "",
    scope: Annotated[str, typer.Option(help="Only below this organisation, team or project; team:NAME where names repeat.")] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="A table for spreadsheets.")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Requests, tokens and costs, added up."""
    wanted = [part for text in by or ["model"] for part in text.split(",")]
    for part in wanted:
        if part not in BY:
            raise CliError(ExitCode.USAGE, f"--by {part}: write some of {', '.join(BY)}")
    if as_csv and as_json:
        raise CliError(ExitCode.USAGE, "write --csv or --json, not both")
    client = api()
    asked: dict[str, str | None] = {
        "by": ",".join(wanted),
        "since": since or None,
        "until": until or None,
        "model": model or None,
    }
    if key:
        asked["key"] = client.find("keys", key, noun="key")["id"]
    if scope:
        from llmgw_site.cli import scopes

        found = scopes.find(client, scope)
        asked[found["kind"]] = found["id"]
    if as_csv:
        sys.stdout.write(client.text("usage/report", **asked, **{"as": "csv"}))
        return
    report = client.get("usage/report", **asked)
    if as_json:
        print_json(report)
        return
    columns: list[Column] = [(part, _value(part)) for part in wanted]
    columns += ["requests", "failed", ("tokens in", _count("prompt_tokens")), ("cached", _count("cached_tokens")),
                ("tokens out", _count("completion_tokens")), ("cost", lambda row: amount(row["cost"], report["currency"]))]  # fmt: skip
    nothing = f"Nobody asked for anything from {report['since']} until {report['until']}."
    show_list(report["results"], columns, as_json=False, empty=nothing)
    if len(report["results"]) > 1:
        total = report["total"]
        print(f"Together {total['requests']:,} requests, {amount(total['cost'], report['currency'])}.")


def amount(micro: int | None, currency: str) -> str:
    """Millionths of the currency as people write it."""
    return "-" if micro is None else format_money(micro, currency)


def _value(part: str) -> Any:
    return lambda row: row.get(f"{part}_name") or row[part] or "none"


def _count(name: str) -> Any:
    return lambda row: f"{row[name]:,}"
