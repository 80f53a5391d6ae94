"""`llmgw model`: what the cluster offers."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli import adapters, model_adding, model_orders, model_prices, model_queues, serving, updates
from llmgw_site.cli import registry as model_registry
from llmgw_site.cli import resources as model_resources
from llmgw_site.cli.client import AsJson, Column, ago, api, print_json, show_item, show_list
from llmgw_site.cli.quotas import KINDS, find_scope
from llmgw_site.lib.units import format_bytes

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


def size(row: dict[str, Any]) -> str:
    return "-" if row["weights_size"] is None else format_bytes(row["weights_size"])


def shape(row: dict[str, Any]) -> str:
    """Architecture and quantization, as far as the file tells."""
    parts = (row["facts"].get("architecture"), row["facts"].get("quantization"))
    return " ".join(part for part in parts if part)


def version_words(version: dict[str, Any] | None) -> str:
    """Fetched weights: where they are from, at which commit, in which quantization."""
    if version is None:
        return "-"
    words = (version["repository"] or version["first"] or version["id"], version["commit"][:8], version["quantization"])
    return " ".join(word for word in words if word)


def engines(row: dict[str, Any]) -> list[str]:
    """What answers for it: engines, or a provider."""
    if row["provider"]:
        return [f"provider {row['provider_name']}"]
    return sorted({profile["engine"] for profile in row["profiles"] if profile["enabled"]})


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
    plain = [name for name in row if name not in ("facts", "profiles", "weights_size", "version", "previous")]
    weights: list[Column] = [(name, _version(name)) for name in ("version", "previous") if row[name]]
    if row["version"] and row["version"]["projector"]:
        weights.append(("sees or hears by", lambda row: row["version"]["projector"]))
    facts: list[Column] = [(f"facts {name}", _fact(name)) for name in row["facts"]]
    show_item(row, as_json=False, fields=[*plain, *weights, ("weights_size", size), *facts])
    print()
    columns: list[Column] = [
        "name",
        "engine",
        "enabled",
        "priority",
        "context",
        "slots",
        "threads",
        "memory",
        "gpus_per_node",
        "tp",
        "card_memory",
        "nodes",
        "labels",
        "args",
        "env",
    ]
    empty = "Its provider answers for it." if row["provider"] else "No profiles: it cannot run until it has one."
    show_list(row["profiles"], columns, as_json=False, empty=empty)


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
            help="Organisation, team or project, by name or id; team:NAME where names repeat; `none`: nobody; "
            "left out: only say whose it is."
        ),
    ] = "",
) -> None:
    """Set whose model it is: its replicas count to the quotas of that scope and of those above."""
    client = api()
    row = client.find("models", model, noun="model")
    if scope and scope != "none":
        kind, found = find_scope(client, scope)
        row = client.patch(f"models/{row['id']}", {kind: found["id"]})
    elif scope:
        row = client.patch(f"models/{row['id']}", dict.fromkeys(KINDS))
    kind = next((name for name in KINDS if row[name]), "")
    print(f"{row['name']} belongs to {f'the {kind} ' + row[f'{kind}_name'] if kind else 'nobody'}.")


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


def _version(name: str) -> Any:
    return lambda row: version_words(row[name])


def _fact(name: str) -> Any:
    return lambda row: row["facts"][name]
