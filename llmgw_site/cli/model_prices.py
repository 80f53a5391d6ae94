"""`llmgw model price`: what a model's tokens cost."""

from __future__ import annotations

from typing import Annotated

import typer

from llmgw_site.cli.client import AsJson, CliError, ExitCode, api, print_json

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
Sent = Annotated[str, typer.Option("--input", metavar="AMOUNT", help="Of a million tokens that are sent.")]
Cached = Annotated[
    str, typer.Option(metavar="AMOUNT", help="Of those that come from the engine's cache; left out: as --input.")
]
Answered = Annotated[str, typer.Option("--output", metavar="AMOUNT", help="Of a million tokens that it answers with.")]
Nothing = Annotated[bool, typer.Option("--none", help="What it costs is not known again.")]


def price(
    model: Ref,
    sent: Sent = "",
    cached: Cached = "",
    answered: Answered = "",
    none: Nothing = False,
    as_json: AsJson = False,
) -> None:
    """Set what a million tokens of a model cost, in the server's LLMGW_CURRENCY. Requests from now on cost that."""
    given = {"price_input": sent or None, "price_cached": cached or None, "price_output": answered or None}
    if none == any(given.values()) or (not none and not (sent and answered)):
        raise CliError(ExitCode.USAGE, "write --input and --output (and --cached), or --none")
    client = api()
    row = client.find("models", model, noun="model")
    row = client.patch(f"models/{row['id']}", given)
    if as_json:
        print_json(row)
    elif none:
        print(f"{row['name']} has no price.")
    else:
        told = f"{row['price_input']} sent, {row['price_output']} answered"
        told += f", {row['price_cached']} from the cache" if row["price_cached"] else ""
        print(f"A million tokens of {row['name']} cost {told}.")
