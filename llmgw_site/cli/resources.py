"""`llmgw model resources`: what a model's profiles reserve against what was measured, and changing it."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import Api, AsJson, CliError, Column, ExitCode, api, part, print_json, show_list
from llmgw_site.lib.units import format_bytes, parse_bytes

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
Gpus = Annotated[int | None, typer.Option(min=0, help="Cards of one node (llama.cpp); 0: the processor.")]
Tp = Annotated[int | None, typer.Option(min=0, help="Cards of one node, each layer divided over all (vLLM).")]
Pp = Annotated[int | None, typer.Option(min=1, help="Nodes of one replica (vLLM).")]
Classes = Annotated[
    list[str] | None, typer.Option(help="Only class of cards it may use; may be repeated; `any` for all.")
]
CardMemory = Annotated[str, typer.Option(help="Memory of a node's cards together, such as 40GiB; 0: estimated.")]
Labels = Annotated[
    list[str] | None, typer.Option(help="KEY=VALUE that a node must have; may be repeated; `any`: none.")
]


def way(
    *,
    gpus_per_node: int | None,
    tp: int | None,
    pp: int | None,
    card_class: list[str] | None,
    card_memory: str,
    label: list[str] | None,
) -> dict[str, Any]:
    """The fields of a profile that these options name; those that were left out are left out."""
    found: dict[str, Any] = {"gpus_per_node": gpus_per_node, "tp": tp, "pp": pp}
    found = {name: value for name, value in found.items() if value is not None}
    if card_class:
        found["card_classes"] = [] if card_class == ["any"] else card_class
    if card_memory:
        found["card_memory"] = size("--card-memory", card_memory)
    if label:
        found["labels"] = pairs("--label", "KEY=VALUE", [] if label == ["any"] else label)
    return found


def pairs(option: str, shape: str, texts: list[str]) -> dict[str, str]:
    """What such texts name, by the part before their first `=`; `shape` says in a refusal how to write one."""
    found = [text.partition("=") for text in texts]
    if any(not name or not equals for name, equals, _ in found):
        raise CliError(ExitCode.USAGE, f"{option}: write {shape}")
    return {name: value for name, _, value in found}


def size(option: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"{option}: {error}") from None


def resources(
    model: Ref,
    profile: Annotated[str, typer.Option(help="Which profile, by name or id; needed where there are several.")] = "",
    threads: Annotated[int | None, typer.Option(min=0, help="Cores reserved and used; 0: what the node says.")] = None,
    memory: Annotated[str, typer.Option(help="Memory to reserve, such as 2GiB; 0: estimated.")] = "",
    slots: Annotated[int | None, typer.Option(min=1, help="Requests answered at once.")] = None,
    priority: Annotated[int | None, typer.Option(help="Of the profiles that fit, the highest is used.")] = None,
    gpus_per_node: Gpus = None,
    tp: Tp = None,
    pp: Pp = None,
    card_class: Classes = None,
    card_memory: CardMemory = "",
    label: Labels = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Only node it may run on; may be repeated; `any` for all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a model reserves against what was measured; or, with options, change a profile. Replicas are replaced one by
    one where their engine has to start otherwise."""
    client = api()
    row = client.find("models", model, noun="model")
    given = {"threads": threads, "slots": slots, "priority": priority}
    body: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if memory:
        body["memory"] = size("--memory", memory)
    if node:
        body["nodes"] = [] if node == ["any"] else node
    body |= way(gpus_per_node=gpus_per_node, tp=tp, pp=pp, card_class=card_class, card_memory=card_memory, label=label)
    if body:
        changed = client.patch(f"models/{row['id']}/profiles/{part(_profile(row, profile))}", body)
        row["profiles"] = [changed if item["id"] == changed["id"] else item for item in row["profiles"]]
        if not as_json:
            print(
                f"Changed the profile {changed['name']} of {row['name']}: its replicas are replaced one by one where that "
                f"makes a difference, `llmgw model show {row['name']} --why` says how far that is."
            )
    _show(client, row, as_json=as_json)


def _profile(row: dict[str, Any], named: str) -> str:
    """Id or name of the profile that is meant."""
    if named:
        return named
    if len(row["profiles"]) != 1:
        names = ", ".join(item["name"] for item in row["profiles"]) or "none"
        raise CliError(ExitCode.USAGE, f"--profile: {row['name']} has the profiles {names}: name one")
    return str(row["profiles"][0]["id"])


def _show(client: Api, row: dict[str, Any], *, as_json: bool) -> None:
    found = client.get(f"models/{row['id']}/resources")
    if as_json:
        print_json(found)
        return
    only = {item["name"]: [*item["nodes"], *item["card_classes"], *_pairs(item["labels"])] for item in row["profiles"]}
    profiles: list[Column] = [
        ("profile", lambda item: item["name"]), "engine", "cores",
        ("memory", lambda item: f"{format_bytes(item['memory'])} {item['memory_source']}"),
        ("measured", lambda item: _bytes(item["memory_measured"])), "cards",
        ("card memory", lambda item: f"{format_bytes(item['card_memory'])} {item['card_source']}" if item["cards"] else None),
        ("only on", lambda item: only.get(item["name"]) or None),
    ]  # fmt: skip
    show_list(found["profiles"], profiles, as_json=False, empty="No enabled profile.")
    replicas: list[Column] = [
        ("replica", lambda item: item["id"]), "node", "state", ("holds", lambda item: _bytes(item["reserved"])),
        ("takes", lambda item: _bytes(item["memory"])), ("cores", lambda item: item["cores"] or None),
        ("busy", lambda item: None if item["cpu"] is None else f"{item['cpu']:.2f} cores"), ("takes of cards", lambda item: _bytes(item["card_memory"])),
        ("cards", lambda item: [f"{uuid} {format_bytes(held)}" for uuid, held in item["cards"].items()]), "warning",
    ]  # fmt: skip
    if found["replicas"]:
        print()
        show_list(found["replicas"], replicas, as_json=False, empty="")


def _pairs(labels: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in labels.items()]


def _bytes(value: int | None) -> str | None:
    return None if value is None else format_bytes(value)
