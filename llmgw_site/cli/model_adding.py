"""`llmgw model add`: a model of weights that nodes run, or one that a provider answers for."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli import model_orders
from llmgw_site.cli import resources as model_resources
from llmgw_site.cli.client import AsJson, CliError, ExitCode, api, print_json

Name = Annotated[str, typer.Argument(help="What clients put into `model`.")]
Weights = Annotated[
    str, typer.Argument(help="The GGUF file (the first part, if it has several), on the nodes; none for --provider.")
]
Description = Annotated[str, typer.Option(help="For people.")]
Replicas = Annotated[int | None, typer.Option(min=0, help="Copies that shall run; 1 if left out.")]
MaxReplicas = Annotated[
    int | None, typer.Option("--max", min=0, help="Copies that may run under load; no more than these if left out.")
]
RestAfter = Annotated[
    float | None, typer.Option(min=0.1, help="Seconds without a request until one on demand (--replicas 0) stops.")
]
Class = Annotated[str, typer.Option("--class", help="critical, standard or opportunistic; left out: by its scaling.")]
Disabled = Annotated[bool, typer.Option("--disabled", help="Add it without starting it.")]
Embeddings = Annotated[bool | None, typer.Option(help="Answers /v1/embeddings; left out: as its file says.")]
Provider = Annotated[str, typer.Option(help="Provider (name or id) that answers for it, in place of weights.")]
ProviderModel = Annotated[str, typer.Option(help="The provider's own name for it.")]
FirstByte = Annotated[
    float | None, typer.Option(min=0.1, help="Seconds until an answer must begin; left out: the node's setting.")
]
Idle = Annotated[
    float | None, typer.Option(min=0.1, help="Seconds that an answer may pause; left out: the node's setting.")
]
Sha256 = Annotated[str, typer.Option(help="SHA-256 that the weights must have.")]
Engine = Annotated[str, typer.Option(help="llama.cpp or vllm.")]
Context = Annotated[int, typer.Option(min=0, help="Tokens per request; 0: 4096, or fewer if trained for fewer.")]
Slots = Annotated[int, typer.Option(min=1, help="Requests answered at once.")]
Threads = Annotated[int, typer.Option(min=0, help="CPU threads; 0: what the node says.")]
Memory = Annotated[str, typer.Option(help="Memory to reserve, such as 2GiB; 0: estimated.")]
Nodes = Annotated[list[str] | None, typer.Option(help="Only node it may run on; may be repeated.")]
Args = Annotated[list[str] | None, typer.Option(help="Further argument of the engine; may be repeated.")]
Env = Annotated[list[str] | None, typer.Option(help="NAME=VALUE for the engine; may be repeated.")]


def add(
    name: Name,
    weights: Weights = "",
    description: Description = "",
    replicas: Replicas = None,
    max_replicas: MaxReplicas = None,
    rest_after: RestAfter = None,
    klass: Class = "",
    disabled: Disabled = False,
    embeddings: Embeddings = None,
    provider: Provider = "",
    provider_model: ProviderModel = "",
    first_byte_timeout: FirstByte = None,
    idle_timeout: Idle = None,
    sha256: Sha256 = "",
    engine: Engine = "llama.cpp",
    context: Context = 0,
    slots: Slots = 1,
    threads: Threads = 0,
    memory: Memory = "0",
    node: Nodes = None,
    gpus_per_node: model_resources.Gpus = None,
    tp: model_resources.Tp = None,
    pp: model_resources.Pp = None,
    card_class: model_resources.Classes = None,
    card_memory: model_resources.CardMemory = "",
    label: model_resources.Labels = None,
    arg: Args = None,
    env: Env = None,
    as_json: AsJson = False,
) -> None:
    """Add a model with its first profile; it starts at once, unless --disabled. Or one that a --provider answers for."""
    if bool(weights) == bool(provider):
        raise CliError(ExitCode.USAGE, "name the file of its weights, or --provider and --provider-model")
    model_orders.vet_class(klass or model_orders.DEFAULT)
    body: dict[str, Any] = {"name": name, "description": description, "enabled": not disabled}
    optional = {"replicas": replicas, "max_replicas": max_replicas, "rest_after": rest_after,
                "priority_class": None if klass in ("", model_orders.DEFAULT) else klass, "embeddings": embeddings,
                "first_byte_timeout": first_byte_timeout, "idle_timeout": idle_timeout}  # fmt: skip
    body |= {field: value for field, value in optional.items() if value is not None}
    if provider:
        _nothing_for_nodes({"--max": max_replicas, "--sha256": sha256, "--context": context, "--threads": threads, "--node": node,
                            "--arg": arg, "--env": env, "--gpus-per-node": gpus_per_node, "--tp": tp, "--pp": pp, "--label": label,
                            "--card-class": card_class, "--card-memory": card_memory})  # fmt: skip
        body |= {"provider": provider, "provider_model": provider_model}
    else:
        cards = model_resources.way(gpus_per_node=gpus_per_node, tp=tp, pp=pp, card_class=card_class, card_memory=card_memory,
                                    label=label)  # fmt: skip
        profile = {"engine": engine, "context": context, "slots": slots, "threads": threads,
                   "memory": model_resources.size("--memory", memory), "nodes": node or [], "args": arg or [],
                   "env": model_resources.pairs("--env", "NAME=VALUE", env or []), **cards}  # fmt: skip
        path = os.path.normpath(Path(weights).expanduser().absolute())
        body |= {"weights_path": path, "weights_sha256": sha256, "profile": profile}
    row = api().post("models", body)
    if as_json:
        print_json(row)
        return
    print(f"Added {row['name']} ({row['id']}).")
    if weights and engine == "llama.cpp" and not row["facts"]:
        print(f"The server has no file {row['weights_path']}; the node that runs it must have one.", file=sys.stderr)


def _nothing_for_nodes(given: dict[str, Any]) -> None:
    for option, value in given.items():
        if value:
            raise CliError(ExitCode.USAGE, f"{option} is for weights that nodes run: leave it out with --provider")
