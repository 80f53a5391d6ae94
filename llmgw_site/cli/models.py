"""`llmgw model`: what the cluster offers."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli import model_orders
from llmgw_site.cli import registry as model_registry
from llmgw_site.cli import resources as model_resources
from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, ago, api, print_json, show_item, show_list
from llmgw_site.cli.quotas import KINDS, find_scope
from llmgw_site.lib.units import format_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Models of the catalogue: what can be asked for.")
for _orders in (model_orders.COMMANDS, model_registry.COMMANDS):
    for _name, _order in _orders.items():
        app.command(_name)(_order)
app.command("resources")(model_resources.resources)

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
Why = Annotated[str, typer.Option(help="Reason, kept with the event.")]


def size(row: dict[str, Any]) -> str:
    return "-" if row["weights_size"] is None else format_bytes(row["weights_size"])


def shape(row: dict[str, Any]) -> str:
    """Architecture and quantization, as far as the file tells."""
    parts = (row["facts"].get("architecture"), row["facts"].get("quantization"))
    return " ".join(part for part in parts if part)


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
    plain = [name for name in row if name not in ("facts", "profiles", "weights_size")]
    facts: list[Column] = [(f"facts {name}", _fact(name)) for name in row["facts"]]
    show_item(row, as_json=False, fields=[*plain, ("weights_size", size), *facts])
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


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="What clients put into `model`.")],
    weights: Annotated[
        str,
        typer.Argument(help="The GGUF file (the first part, if it has several), on the nodes; none for --provider."),
    ] = "",
    description: Annotated[str, typer.Option(help="For people.")] = "",
    replicas: Annotated[int | None, typer.Option(min=0, help="Copies that shall run; 1 if left out.")] = None,
    max_replicas: Annotated[
        int | None, typer.Option("--max", min=0, help="Copies that may run under load; no more than these if left out.")
    ] = None,
    rest_after: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds without a request until one on demand (--replicas 0) stops.")
    ] = None,
    klass: Annotated[
        str, typer.Option("--class", help="critical, standard or opportunistic; left out: by its scaling.")
    ] = "",
    disabled: Annotated[bool, typer.Option("--disabled", help="Add it without starting it.")] = False,
    embeddings: Annotated[bool | None, typer.Option(help="Answers /v1/embeddings; left out: as its file says.")] = None,
    provider: Annotated[str, typer.Option(help="Provider (name or id) that answers for it, in place of weights.")] = "",
    provider_model: Annotated[str, typer.Option(help="The provider's own name for it.")] = "",
    first_byte_timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds until an answer must begin; left out: the node's setting.")
    ] = None,
    idle_timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds that an answer may pause; left out: the node's setting.")
    ] = None,
    sha256: Annotated[str, typer.Option(help="SHA-256 that the weights must have.")] = "",
    engine: Annotated[str, typer.Option(help="llama.cpp or vllm.")] = "llama.cpp",
    context: Annotated[
        int, typer.Option(min=0, help="Tokens per request; 0: 4096, or fewer if trained for fewer.")
    ] = 0,
    slots: Annotated[int, typer.Option(min=1, help="Requests answered at once.")] = 1,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: what the node says.")] = 0,
    memory: Annotated[str, typer.Option(help="Memory to reserve, such as 2GiB; 0: estimated.")] = "0",
    node: Annotated[list[str] | None, typer.Option(help="Only node it may run on; may be repeated.")] = None,
    gpus_per_node: model_resources.Gpus = None,
    tp: model_resources.Tp = None,
    pp: model_resources.Pp = None,
    card_class: model_resources.Classes = None,
    card_memory: model_resources.CardMemory = "",
    label: model_resources.Labels = None,
    arg: Annotated[list[str] | None, typer.Option(help="Further argument of the engine; may be repeated.")] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the engine; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Add a model with its first profile; it starts at once, unless --disabled. Or one that a --provider answers for."""
    if bool(weights) == bool(provider):
        raise CliError(ExitCode.USAGE, "name the file of its weights, or --provider and --provider-model")
    model_orders.vet_class(klass or model_orders.DEFAULT)
    body: dict[str, Any] = {"name": name, "description": description, "enabled": not disabled}
    optional = {"replicas": replicas, "max_replicas": max_replicas, "rest_after": rest_after,
                "priority_class": None if klass in ("", model_orders.DEFAULT) else klass, "embeddings": embeddings, "first_byte_timeout": first_byte_timeout,
                "idle_timeout": idle_timeout}  # fmt: skip
    body.update({field: value for field, value in optional.items() if value is not None})
    if provider:
        for option, value in {"--max": max_replicas, "--sha256": sha256, "--context": context, "--threads": threads, "--node": node, "--arg": arg,
                              "--env": env, "--gpus-per-node": gpus_per_node, "--tp": tp, "--pp": pp, "--label": label,
                              "--card-class": card_class, "--card-memory": card_memory}.items():  # fmt: skip
            if value:
                raise CliError(ExitCode.USAGE, f"{option} is for weights that nodes run: leave it out with --provider")
        row = api().post("models", {**body, "provider": provider, "provider_model": provider_model})
        print_json(row) if as_json else print(f"Added {row['name']} ({row['id']}).")
        return
    reserve = model_resources.size("--memory", memory)
    cards = model_resources.way(
        gpus_per_node=gpus_per_node, tp=tp, pp=pp, card_class=card_class, card_memory=card_memory, label=label
    )
    pairs = [item.partition("=") for item in env or []]
    if any(not name or not equals for name, equals, _ in pairs):
        raise CliError(ExitCode.USAGE, "--env: write NAME=VALUE")
    profile = {"engine": engine, "context": context, "slots": slots, "threads": threads, "memory": reserve,
               "nodes": node or [], "args": arg or [], "env": {name: value for name, _, value in pairs}, **cards}  # fmt: skip
    body["weights_path"] = os.path.normpath(Path(weights).expanduser().absolute())
    body["weights_sha256"], body["profile"] = sha256, profile
    row = api().post("models", body)
    if as_json:
        print_json(row)
        return
    print(f"Added {row['name']} ({row['id']}).")
    if engine == "llama.cpp" and not row["facts"]:
        print(f"The server has no file {row['weights_path']}; the node that runs it must have one.", file=sys.stderr)


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


def _fact(name: str) -> Any:
    return lambda row: row["facts"][name]
