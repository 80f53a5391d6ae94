"""`llmgw model adapters NAME add|remove|list|update|rollback`: LoRA adapters, each asked for by a name of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli import following, updates
from llmgw_site.cli.client import Api, AsJson, CliError, Column, ExitCode, ago, api, part, print_json, show_list
from llmgw_site.lib.units import format_bytes

ORDERS = ("update", "rollback")
ACTIONS = ("list", "add", "remove", *ORDERS)


def origin(row: dict[str, Any]) -> str:
    """Where its file comes from."""
    return f"{row['repository']} {row['commit'][:8]}" if row["repository"] else row["path"] or row["version"]


COLUMNS: tuple[Column, ...] = (
    "name", ("rank", lambda row: row["facts"].get("rank")), "scale", ("size", lambda row: format_bytes(row["size"])),
    ("from", origin), ("added", lambda row: ago(row["created_at"])), "id",
)  # fmt: skip


def adapters(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")],
    action: Annotated[str, typer.Argument(metavar="list|add|remove|update|rollback", help="What to do.")] = "list",
    what: Annotated[
        str,
        typer.Argument(
            metavar="ADAPTER",
            help="add: a file on the nodes, or OWNER/REPOSITORY of the registry; else its name or id.",
        ),
    ] = "",
    name: Annotated[
        str, typer.Option(help="What clients ask for; left out: as the file or the repository is called.")
    ] = "",
    file: Annotated[str, typer.Option(help="Which file of the repository, where it has several.")] = "",
    revision: Annotated[str, typer.Option(help="A branch, tag or commit; the newest unless told.")] = "",
    scale: Annotated[float, typer.Option(help="How strongly it applies; 1: as it was trained.")] = 1.0,
    detach: following.Detach = False,
    as_json: AsJson = False,
) -> None:
    """Adapters of a model: list them, add one (it is read first), remove one, have what its origin has now, or go back to what it was."""
    if action not in ACTIONS:
        raise CliError(
            ExitCode.USAGE, f"{action!r} is no action: write list, add, remove, update or rollback after the model"
        )
    if (action == "list") == bool(what):
        raise CliError(ExitCode.USAGE, "`list` takes no adapter" if what else f"{action}: name the adapter")
    client = api()
    row = client.find("models", model, noun="model")
    if action == "add":
        _add(client, row, what, name=name, file=file, revision=revision, scale=scale, as_json=as_json)
    elif action in ORDERS:
        updates.adapter_job(client, row, what, action, detach=detach, as_json=as_json)
    elif action == "remove":
        client.delete(f"models/{row['id']}/adapters/{part(what)}")
        print(f"Removed {what} from {row['name']}.")
    else:
        empty = f"{row['name']} has no adapters: add one with `llmgw model adapters {row['name']} add FILE`."
        show_list(client.all(f"models/{row['id']}/adapters"), COLUMNS, as_json=as_json, empty=empty)


def _add(
    client: Api, row: dict[str, Any], what: str, *, name: str, file: str, revision: str, scale: float, as_json: bool
) -> None:
    local = what.startswith(("/", ".", "~")) or not re.fullmatch(r"[\w.-]+/[\w.-]+", what)
    body: dict[str, Any] = {"scale": scale}
    if local:
        if file or revision:
            raise CliError(ExitCode.USAGE, "--file and --revision are for a repository of the registry")
        body["path"] = os.path.normpath(Path(what).expanduser().absolute())
    else:
        body |= {"repository": what, **({"file": file} if file else {}), **({"revision": revision} if revision else {})}
    body["name"] = name or Path(what).name.removesuffix(".gguf")
    made = client.post(f"models/{row['id']}/adapters", body)
    if as_json:
        print_json(made)
        return
    print(f"Added {made['name']} to {row['name']}; it can be asked for when a replica has loaded it.")
