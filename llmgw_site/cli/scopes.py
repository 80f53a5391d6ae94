"""`llmgw scope`: organisations, teams and projects, which models may be used below each, and what goes first there."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import Api, AsJson, CliError, Column, ExitCode, api, part, print_json, show_list
from llmgw_site.cli.model_orders import CLASSES, DEFAULT, vet_class

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Organisations, teams and projects, and the models they may use."
)

PATHS = {"organisation": "organisations", "team": "teams", "project": "projects"}
PARENTS = {"team": "organisation", "project": "team"}
Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="Name, path (acme/search/web, search/web) or id of an organisation, team or project; or team:NAME.",
    ),
]
Names = Annotated[
    list[str] | None,
    typer.Option("--model", help="Model or adapter that keys below it may use; may be repeated; left out: all."),
]
COLUMNS: tuple[Column, ...] = (
    ("scope", lambda row: " / ".join(row["path"])), "kind",
    ("models", lambda row: "all" if row["allowed_models"] is None else row["allowed_models"]),
    ("class", lambda row: row["priority_class"] or f"({row['effective_class']})"), "id",
)  # fmt: skip


@app.command("list")
def list_scopes(as_json: AsJson = False) -> None:
    """The whole tree, with the models that each of its scopes allows, and its class; one in brackets comes from above."""
    rows = sorted(_tree(api()), key=lambda row: row["path"])
    show_list(
        rows, COLUMNS, as_json=as_json, empty="No scopes yet: make one with `llmgw scope create organisation NAME`."
    )


@app.command()
def create(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="organisation, team or project.")],
    name: Annotated[str, typer.Argument()],
    within: Annotated[
        str, typer.Option("--in", metavar="SCOPE", help="Of a team: its organisation. Of a project: its team.")
    ] = "",
    model: Names = None,
    klass: Annotated[
        str, typer.Option("--class", metavar="CLASS", help=f"{', '.join(CLASSES)}; left out: as above it.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make an organisation, a team of one, or a project of a team."""
    vet_class(klass or DEFAULT)
    if kind not in PATHS:
        raise CliError(ExitCode.USAGE, f"{kind!r} is no kind of scope: write {', '.join(PATHS)}")
    parent = PARENTS.get(kind)
    if bool(parent) != bool(within):
        wanted = f"a {kind} is in one {parent}" if parent else "an organisation is in nothing"
        raise CliError(ExitCode.USAGE, f"{wanted}: {'name it with' if parent else 'leave out'} --in")
    body = {"name": name, "allowed_models": model or None, **({parent: within} if parent else {})}
    if klass not in ("", DEFAULT):
        body["priority_class"] = klass
    row = api().post(PATHS[kind], body)
    print_json(row) if as_json else print(f"Made the {kind} {row['name']} ({row['id']}).")


@app.command()
def allow(
    scope: Scope,
    model: Names = None,
    every: Annotated[bool, typer.Option("--all", help="Every model again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Say which models keys below a scope may use, in place of the list there may be. Each scope above may allow less."""
    if every == bool(model):
        raise CliError(ExitCode.USAGE, "name models with --model, or write --all")
    client = api()
    found = find(client, scope)
    row = client.patch(f"{PATHS[found['kind']]}/{part(found['id'])}", {"allowed_models": None if every else model})
    names = row["allowed_models"]
    told = "every model" if names is None else ", ".join(names)
    print_json(row) if as_json else print(f"Keys of the {found['kind']} {row['name']} may use {told}.")


@app.command("class")
def priority_class(
    scope: Scope,
    klass: Annotated[
        str, typer.Argument(metavar="CLASS", help=f"{', '.join(CLASSES)}, or {DEFAULT}: as the scope above it.")
    ],
) -> None:
    """Say how much the requests below a scope matter: where they wait for room, those of a higher class go first."""
    vet_class(klass)
    client = api()
    found = find(client, scope)
    path = f"{PATHS[found['kind']]}/{part(found['id'])}"
    row = client.patch(path, {"priority_class": "" if klass == DEFAULT else klass})
    why = "" if row["priority_class"] else ", since it says nothing itself"
    print(f"Requests below the {found['kind']} {row['name']} are {row['effective_class']}{why}.")


@app.command()
def remove(scope: Scope) -> None:
    """Remove a scope that holds nothing."""
    client = api()
    found = find(client, scope)
    client.delete(f"{PATHS[found['kind']]}/{part(found['id'])}")
    print(f"Removed the {found['kind']} {found['name']}.")


def find(client: Api, ref: str) -> dict[str, Any]:
    """The scope whose id, name or path is `ref`, with its `kind`; `team:NAME` says which kind is meant, `search/web` in what it is."""
    kind, colon, name = ref.partition(":")
    rows = _tree(client)
    if colon and kind in PATHS:
        rows, ref = [row for row in rows if row["kind"] == kind], name
    names = [name.strip() for name in ref.split("/")]
    found = (
        [row for row in rows if row["id"] == ref]
        or [row for row in rows if row["name"] == ref]
        or [row for row in rows if len(names) > 1 and row["path"][-len(names) :] == names]
    )
    if not found:
        raise CliError(ExitCode.NOT_FOUND, f"there is no scope {ref!r}; `llmgw scope list` shows them")
    if len(found) > 1:
        told = " or ".join(f"{'/'.join(row['path'])} ({row['id']})" for row in found)
        raise CliError(ExitCode.REFUSED, f"several scopes are named {ref!r}: write {told}")
    return found[0]


def _tree(client: Api) -> list[dict[str, Any]]:
    """Every scope that the caller may see, with its kind and the names above it."""
    found: dict[str, dict[str, Any]] = {}
    for kind, path in PATHS.items():
        for row in client.all(path):
            above = found.get(row.get(PARENTS.get(kind, ""), ""))
            found[row["id"]] = {**row, "kind": kind, "path": [*(above["path"] if above else []), row["name"]]}
    return list(found.values())
