"""`llmgw alias`: names that stand for one of several models, by weight."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, ago, api, part, print_json, show_list

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Names that stand for one of several models: a canary, a name that outlives its model.",
)

Ref = Annotated[str, typer.Argument(metavar="ALIAS", help="Its name or id.")]
MODELS = "MODEL or MODEL=WEIGHT…"
Description = Annotated[str | None, typer.Option(help="For people.")]
Why = Annotated[str, typer.Option(help="Reason, kept with the event.")]
WIDTH = 24
"""Characters of a drawn split."""
SHADES = "█▓▒░"


def shares(row: dict[str, Any]) -> str:
    return ", ".join(f"{item['model']} {item['share']:.1%}" for item in row["targets"])


def bar(row: dict[str, Any]) -> str:
    """The split as a line of blocks, a target a shade, in the order that they are named in; each is seen."""
    cells, drawn = "", 0.0
    for number, item in enumerate(row["targets"]):
        drawn += item["share"]
        cells += SHADES[number % len(SHADES)] * max(1, round(drawn * WIDTH) - len(cells))
    return cells


COLUMNS: tuple[Column, ...] = (
    "name",
    ("split", bar),
    ("stands for", shares),
    ("changed", lambda row: ago(row["updated_at"])),
)


@app.command("list")
def list_aliases(as_json: AsJson = False) -> None:
    """All aliases, with what they stand for."""
    rows = api().all("aliases")
    show_list(rows, COLUMNS, as_json=as_json, empty="No aliases yet: add one with `llmgw alias add NAME MODEL`.")


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What clients put into `model`.")],
    targets: Annotated[list[str], typer.Argument(metavar=MODELS, help="What it stands for; weight 1 unless told.")],
    description: Description = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Add an alias: each model answers the share of requests that its weight has of all."""
    body = {"name": name, "targets": split(targets), "description": description or "", "why": why}
    row = api().post("aliases", body)
    print_json(row) if as_json else print(f"{row['name']} stands for {shares(row)}.")


@app.command("set")
def set_alias(
    alias: Ref,
    targets: Annotated[
        list[str] | None, typer.Argument(metavar=f"[{MODELS}]", help="All that it shall stand for from now on.")
    ] = None,
    name: Annotated[str, typer.Option(help="Another name.")] = "",
    description: Description = None,
    why: Why = "",
    as_json: AsJson = False,
) -> None:
    """Have an alias stand for these, or give it another name. Only as many conversations move as must."""
    body: dict[str, Any] = {"targets": split(targets)} if targets else {}
    body |= {"name": name} if name else {}
    body |= {} if description is None else {"description": description}
    if not body:
        raise CliError(ExitCode.USAGE, "name what it shall stand for, as MODEL=WEIGHT, or give --name or --description")
    client = api()
    row = client.find("aliases", alias, noun="alias")
    row = client.patch(f"aliases/{part(row['id'])}", {**body, "why": why})
    print_json(row) if as_json else print(f"{row['name']} stands for {shares(row)}.")


@app.command()
def remove(alias: Ref) -> None:
    """Remove an alias. What it stood for stays."""
    client = api()
    row = client.find("aliases", alias, noun="alias")
    client.delete(f"aliases/{part(row['id'])}")
    print(f"Removed {row['name']}: clients that ask for it are told that there is no such model.")


def split(texts: list[str]) -> list[dict[str, Any]]:
    """Names and weights as the API takes them."""
    found = []
    for text in texts:
        model, equals, weight = text.partition("=")
        if not model or (equals and not (weight.isascii() and weight.isdecimal())):
            raise CliError(ExitCode.USAGE, f"{text!r}: write MODEL or MODEL=WEIGHT, the weight a whole number")
        found.append({"model": model, "weight": int(weight) if equals else 1})
    return found
