"""`llmgw setup show|apply`: which node runs which modules, set once for the whole cluster."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, ExitCode, ago, api, print_json

app = typer.Typer(no_args_is_help=True, add_completion=False, help="The cluster setup: which node runs which modules.")


SAID = ("updated_at", "updated_by")
"""What the server says of a setup beside the setup itself."""


@app.command()
def show() -> None:
    """Print the setup as JSON; `llmgw setup apply` takes it back."""
    found = api().get("cluster/setup")
    if found["updated_at"]:
        print(f"version {found['version']}, by {found['updated_by']} {ago(found['updated_at'])}", file=sys.stderr)
    else:
        print("nothing is set: every node goes by its own roles", file=sys.stderr)
    print_json({name: value for name, value in found.items() if name not in SAID})


@app.command()
def apply(
    file: Annotated[str, typer.Argument(help="JSON file as `llmgw setup show` prints it; - reads standard input.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Replace the setup by what the file says; a node that it does not name keeps its own roles.

    With the `version` that `show` prints the file is refused if somebody else was faster; without it, it is not.
    """
    body = {name: value for name, value in read(file).items() if name not in SAID}
    answer = api().put("cluster/setup", {**body, "reason": reason} if reason else body)
    if as_json:
        print_json(answer)
        return
    print(f"The cluster setup is version {answer['version']}. Nodes follow with their next heartbeat.")
    lines = {"every controller": answer["controller_tier"], **answer["nodes"]}
    if not answer["controller_tier"] and not answer["nodes"]:
        print("  nothing is set: every node goes by its own roles")
        return
    for name, roles in lines.items():
        print(f"  {name}: {', '.join(roles) or 'nothing'}")


def read(file: str) -> dict[str, Any]:
    """The object in this file. Raises CliError USAGE where there is none."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise CliError(ExitCode.USAGE, f"{file} cannot be read: {reason}") from None
    try:
        found = json.loads(text)
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"{file} is no JSON: {error}; `llmgw setup show` prints the form") from None
    if not isinstance(found, dict):
        raise CliError(ExitCode.USAGE, f"{file} holds no JSON object; `llmgw setup show` prints the form")
    return found
