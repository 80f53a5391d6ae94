"""`llmgw model`: what the cluster offers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli import (
    adapters,
    model_adding,
    model_orders,
    model_prices,
    model_queues,
    model_words,
    scopes,
    serving,
    updates,
)
from llmgw_site.cli import registry as model_registry
from llmgw_site.cli import resources as model_resources
from llmgw_site.cli.client import AsJson, Column, ago, api, print_json, show_item, show_list
from llmgw_site.cli.model_words import engines, size, version_words
from llmgw_site.cli.quotas import KINDS

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Models of the catalogue: what can be asked for.")
for _orders in (serving.COMMANDS, model_orders.COMMANDS, model_registry.COMMANDS, updates.COMMANDS):
    for _name, _order in _orders.items():
        app.command(_name)(_order)
app.command("resources")(model_resources.resources)
app.command("adapters")(adapters.adapters)
app.command("price")(model_prices.price)
app.command("queue")(model_queues.queue)
app.command("fallback")(model_queues.fallback)

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
Why = Annotated[str, typer.Option(help="Reason, kept with the event.")]


def shape(row: dict[str, Any]) -> str:
    """Architecture and quantization, as far as the file tells."""
    parts = (row["facts"].get("architecture"), row["facts"].get("quantization"))
    return " ".join(part for part in parts if part)


COLUMNS: tuple[Column, ...] = (
    "name", "enabled", "replicas", ("engine", engines), ("shape", shape), ("size", size),
    ("added", lambda row: ago(row["created_at"])), "id",
)  # fmt: skip


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """All models, and how each stands now."""
    client = api()
    rows = client.all("models")
    if as_json:
        print_json(rows)
        return
    states = model_orders.states(client)
    columns: tuple[Column, ...] = (*COLUMNS[:3], ("now", lambda row: states.get(row["id"], "-")), *COLUMNS[3:])
    if any(row["version"] for row in rows):
        columns = (*columns[:-2], ("weights", lambda row: version_words(row["version"])), *columns[-2:])
    show_list(rows, columns, as_json=False, empty="No models yet: add one with `llmgw model add`.")


@app.command()
def show(
    model: Ref,
    why: Annotated[bool, typer.Option("--why", help="How it stands, what it waits for, what was decided.")] = False,
    as_json: AsJson = False,
) -> None:
    """One model, with its profiles and what its file says of itself."""
    client = api()
    row = client.find("models", model, noun="model")
    if as_json:
        print_json(client.get(f"models/{row['id']}/why") if why else row)
        return
    if why:
        model_orders.show_why(client, row)
        return
    show_item(row, as_json=False, fields=model_words.fields(row, model_orders.states(client).get(row["id"], "")))
    print()
    empty = "Its provider answers for it." if row["provider"] else "No profiles: it cannot run until it has one."
    show_list(row["profiles"], model_words.PROFILES, as_json=False, empty=empty)


app.command("add")(model_adding.add)


@app.command()
def enable(model: Ref, why: Why = "") -> None:
    """Have a model running again."""
    row = _act(model, "enable", why)
    print(f"{row['name']} is enabled.")


@app.command()
def disable(model: Ref, why: Why = "") -> None:
    """Refuse new requests to a model, let running ones finish, stop it."""
    row = _act(model, "disable", why)
    print(f"{row['name']} is disabled.")


@app.command()
def owner(
    model: Ref,
    scope: Annotated[
        str,
        typer.Argument(
            help="Organisation, team or project, by name, path (search/web) or id; or team:NAME; `none`: nobody; "
            "left out: only say whose it is."
        ),
    ] = "",
) -> None:
    """Set whose model it is: its replicas count to the quotas of that scope and of those above."""
    client = api()
    row = client.find("models", model, noun="model")
    if scope and scope != "none":
        found = scopes.find(client, scope)
        kind = found["kind"]
        row = client.patch(f"models/{row['id']}", {kind: found["id"]})
    elif scope:
        row = client.patch(f"models/{row['id']}", dict.fromkeys(KINDS))
    named = model_words.owner(row)
    print(f"{row['name']} belongs to {named if named == 'nobody' else f'the {named}'}.")


@app.command()
def remove(model: Ref) -> None:
    """Remove a model from the catalogue. Its weights stay on the disk."""
    client = api()
    row = client.find("models", model, noun="model")
    client.delete(f"models/{row['id']}")
    print(f"Removed {row['name']}.")


def _act(model: str, action: str, why: str) -> dict[str, Any]:
    client = api()
    row = client.find("models", model, noun="model")
    answer: dict[str, Any] = client.post(f"models/{row['id']}/{action}", {"why": why})
    return answer
