"""`llmgw model queue` and `llmgw model fallback`: what becomes of requests that a model has no room for."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, ExitCode, api, print_json

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
NONE = "none"


def queue(
    model: Ref,
    length: Annotated[
        str, typer.Option(metavar="COUNT", help="Requests that wait at a node, at most; `none`: the server's setting.")
    ] = "",
    wait: Annotated[
        str, typer.Option(metavar="SECONDS", help="That one waits, at most; `none`: the server's setting.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Set how many requests wait for room at a model's replicas, and for how long."""
    body: dict[str, Any] = {}
    if length:
        body["queue_length"] = None if length == NONE else length
    if wait:
        body["queue_wait"] = None if wait == NONE else wait
    if not body:
        raise CliError(ExitCode.USAGE, "write what shall change: --length or --wait")
    row = _changed(model, body)
    if as_json:
        print_json(row)
        return
    most = "as many as the server's setting says" if row["queue_length"] is None else f"at most {row['queue_length']}"
    bound = "as long as the server's setting says" if row["queue_wait"] is None else f"{row['queue_wait']:g} s at most"
    print(f"Of the requests for {row['name']}, {most} wait at a node, {bound}.")


def fallback(
    model: Ref,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Models that answer instead, the first choice first.")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Nobody answers instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which models answer while this one cannot: no replica, no room, or a request that is too long for it."""
    if none == bool(names):
        raise CliError(ExitCode.USAGE, "name the models that answer instead, or write --none")
    row = _changed(model, {"fallbacks": names or []})
    if as_json:
        print_json(row)
    elif row["fallbacks"]:
        print(f"While {row['name']} cannot answer, {', then '.join(row['fallbacks'])} does.")
    else:
        print(f"Nobody answers for {row['name']}.")


def _changed(model: str, body: dict[str, Any]) -> dict[str, Any]:
    client = api()
    row = client.find("models", model, noun="model")
    changed: dict[str, Any] = client.patch(f"models/{row['id']}", body)
    return changed
