"""`llmgw strategy [NAME]`: how the router chooses the node that answers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, api, print_json

app = typer.Typer(no_args_is_help=False, add_completion=False, help="How the router chooses the node that answers.")


@app.command()
def strategy(
    name: Annotated[
        str,
        typer.Argument(help="load_based, round_robin, least_connections, least_latency, random or affinity."),
    ] = "",
    affinity: Annotated[
        bool | None,
        typer.Option(help="Keep conversations on the node that has them, whatever the strategy; left out: as it is."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the strategy of the router at LLMGW_URL, or set it there. It is kept across restarts."""
    client = api()
    if name or affinity is not None:
        body: dict[str, Any] = {"strategy": name or client.get("router/strategy")["strategy"]}
        if affinity is not None:
            body["affinity"] = affinity
        answer = client.put("router/strategy", body)
    else:
        answer = client.get("router/strategy")
    if as_json:
        print_json(answer)
        return
    print(f"strategy  {answer['strategy']} (of {', '.join(answer['strategies'])})")
    print(f"affinity  {'on' if answer['affinity'] else 'off'}")
