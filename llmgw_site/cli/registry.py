"""`llmgw model search|files|plan`: what there is to be had, and how it would run here, before anything is fetched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any
from urllib.parse import quote

import typer

from llmgw_site.cli.client import AsJson, Column, ago, api, print_json, show_list
from llmgw_site.lib.units import format_bytes

Repository = Annotated[str, typer.Argument(metavar="OWNER/REPOSITORY", help="A repository of the registry.")]
Revision = Annotated[str, typer.Option(help="A branch, tag or commit; the newest unless told.")]


def _marks(row: dict[str, Any]) -> list[str]:
    """What one has to know before choosing it."""
    gated = [f"gated ({row['gated']})"] if row["gated"] else []
    marks = [name for name in ("adapter", "private", "held") if row[name]]
    return [*row["formats"], *marks, *gated]


FOUND: tuple[Column, ...] = (
    ("repository", lambda row: row["id"]), ("has", _marks), "downloads", "likes", "license",
    ("changed", lambda row: ago(row["changed"]) if row["changed"] else "-"),
)  # fmt: skip
SETS: tuple[Column, ...] = (
    "quantization", ("size", lambda row: format_bytes(row["size"])), ("file", lambda row: row["name"]),
    ("parts", lambda row: len(row["files"])), ("missing", lambda row: row["missing"]),
)  # fmt: skip


def search(
    text: Annotated[str, typer.Argument(help="Words of the name.")] = "",
    format: Annotated[str | None, typer.Option(help="gguf or safetensors.")] = None,
    adapters_of: Annotated[str | None, typer.Option(help="Adapters of this base model, as OWNER/REPOSITORY.")] = None,
    sort: Annotated[str | None, typer.Option(help="downloads, likes, lastModified or trendingScore.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Models of the registry, those with the most downloads first."""
    page = api().get(
        "registry/models", search=text or None, file_format=format, adapters_of=adapters_of, sort=sort, limit=limit
    )
    if as_json:
        print_json(page["results"])
        return
    show_list(page["results"], FOUND, as_json=False, empty="Nothing found: try fewer words.")


def files(repository: Repository, revision: Revision = "", as_json: AsJson = False) -> None:
    """The models that a repository's files make."""
    found = api().get(f"registry/models/{quote(repository)}", revision=revision or None)
    if as_json:
        print_json(found)
        return
    print(f"{found['id']} at {found['commit'][:12]}, licence {found['license'] or 'not stated'}.")
    if found["gated"]:
        print("It is gated: its owner wants to be asked before its files are fetched.")
    print()
    show_list(found["sets"], SETS, as_json=False, empty="No .gguf and no .safetensors model in it.")
    for item in found["projectors"]:
        print(f"Projector {item['path']}, {format_bytes(item['size'])}")


def plan(
    repository: Repository,
    revision: Revision = "",
    quant: Annotated[str | None, typer.Option(help="Only this quantisation, such as Q4_K_M.")] = None,
    file: Annotated[str | None, typer.Option(help="Only the set that this file belongs to.")] = None,
    format: Annotated[str | None, typer.Option(help="gguf or safetensors.")] = None,
    context: Annotated[int | None, typer.Option(min=1, help="Tokens of each slot.")] = None,
    slots: Annotated[int | None, typer.Option(min=1, help="Requests at once.")] = None,
    gpu_class: Annotated[str | None, typer.Option(help="Only on cards of this class.")] = None,
    tp: Annotated[int | None, typer.Option(min=1, help="Only with so many cards of a node.")] = None,
    projector: Annotated[str | None, typer.Option(help="auto, none, or the file that lets it see or hear.")] = None,
    as_json: AsJson = False,
) -> None:
    """How each file of a repository would run on this cluster: where, what it takes, and whether that is free now."""
    found = api().get(
        f"registry/models/{quote(repository)}/plan", revision=revision or None, quantization=quant, file=file, file_format=format,
        context=context, slots=slots, gpu_class=gpu_class, tp=tp, projector=projector,
    )  # fmt: skip
    if as_json:
        print_json(found)
        return
    print(f"{found['repository']} at {found['commit'][:12]}")
    for variant in found["variants"]:
        print(f"\n{variant['name']}, {format_bytes(variant['size'])}{sees(variant)}")
        for way in variant["ways"]:
            reach = f"context {way['context']}, up to {way['context_max']}"
            print(f"  {where(way)}: {takes(way)}; {free(way)}; {reach}{speed(way)}")
        if not variant["ways"]:
            print(f"  nowhere: {variant['message']}")


def sees(variant: dict[str, Any]) -> str:
    """`, with mmproj-F16.gguf, 812.0 MiB, which takes 1.0 GiB`; empty: nothing lets it see."""
    if not variant["projector"]:
        return ""
    size, memory = format_bytes(variant["projector_size"]), format_bytes(variant["projector_memory"])
    return f", with {variant['projector']}, {size} of it, which takes {memory}"


def speed(way: dict[str, Any]) -> str:
    """What was measured; empty: nothing."""
    if not way["tokens_per_second"]:
        return ""
    load = f"up to {way['at_once']} at once" if way["at_once"] else "not even one in time"
    return f"; measured {way['tokens_per_second']:.0f} tokens/s, {load}"


def where(way: dict[str, Any]) -> str:
    """`2 x NVIDIA L4, by layers (llama.cpp)`"""
    if not way["gpu_class"]:
        return f"processor ({way['engine']})"
    cards = way["tp"] or way["gpus_per_node"]
    how = "" if cards == 1 else f", tp={way['tp']}" if way["tp"] else ", by layers"
    over = f"fabric {way['fabric']}" if way["fabric"] else "one fabric"
    span = f" on each of {way['nodes']} nodes" if way["nodes"] > 1 else ""
    how += f", over {over}" if span else ""
    return f"{cards} x {way['gpu_class']}{span}{how} ({way['engine']})"


def takes(way: dict[str, Any]) -> str:
    """`12.0 GiB of cards, 1.1 GiB of memory`"""
    memory = f"{format_bytes(way['memory'])} of memory"
    return f"{format_bytes(way['card_memory'])} of cards, {memory}" if way["card_memory"] else memory


def free(way: dict[str, Any]) -> str:
    """Where there is room now."""
    names = ", ".join(item["node"] for item in way["takes"])
    return f"free now on {names}" if names else "in use now"


COMMANDS: dict[str, Callable[..., None]] = {"search": search, "files": files, "plan": plan}
