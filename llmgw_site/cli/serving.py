"""`llmgw model serve`: from a repository, addresses or a file to a model that answers, as one job that is followed here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli import following
from llmgw_site.cli.client import AsJson, CliError, ExitCode, api

Source = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE…", help="OWNER/REPOSITORY (@REVISION), a file of this machine, or addresses of files."),
]  # fmt: skip
Name = Annotated[str, typer.Option(help="What clients put into `model`; left out: after the repository or file.")]
Quant = Annotated[str, typer.Option(help="The quantisation, such as Q4_K_M; left out: the best that fits.")]
File = Annotated[str, typer.Option(help="The file, of several parts any of them.")]
Format = Annotated[str, typer.Option(help="gguf or safetensors.")]
Way = Annotated[str, typer.Option(help="As `llmgw model plan` shows it: `processor`, `cards`, `2 x NVIDIA L4`.")]
GpuClass = Annotated[str, typer.Option(help="Only on cards of this class.")]
Tp = Annotated[int | None, typer.Option(min=1, help="Only with so many cards of a node.")]
OnDemand = Annotated[bool, typer.Option("--on-demand", help="Runs from the first request on, and rests when unused.")]
Fallbacks = Annotated[bool, typer.Option("--fallbacks", help="Add the next best ways too, with lower priority.")]
Context = Annotated[int | None, typer.Option(min=1, help="Tokens of each slot; left out: 4096 or as trained.")]
Slots = Annotated[int | None, typer.Option(min=1, help="Requests at once.")]
Projector = Annotated[str, typer.Option(help="auto, none, or the file that lets it see or hear.")]
Sha256 = Annotated[list[str] | None, typer.Option(help="SHA-256 of a file; for each address one, in the same order.")]
Replicas = Annotated[int | None, typer.Option(min=1, help="Copies.")]
Description = Annotated[str, typer.Option(help="For people.")]


def serve(
    source: Source,
    name: Name = "",
    quant: Quant = "",
    file: File = "",
    format: Format = "",
    way: Way = "",
    gpu_class: GpuClass = "",
    tp: Tp = None,
    on_demand: OnDemand = False,
    fallbacks: Fallbacks = False,
    context: Context = None,
    slots: Slots = None,
    projector: Projector = "",
    sha256: Sha256 = None,
    replicas: Replicas = None,
    description: Description = "",
    detach: following.Detach = False,
    as_json: AsJson = False,
) -> None:
    """Have a model served: find the best way, fetch its weights once, start it, and ask it something."""
    path = _path(source)
    wanted = {"quantization": quant, "file": file, "file_format": format, "way": way, "gpu_class": gpu_class, "tp": tp,
              "on_demand": on_demand, "fallbacks": fallbacks, "context": context, "slots": slots, "projector": projector}  # fmt: skip
    args: dict[str, Any] = {key: value for key, value in wanted.items() if value}
    if path is None:
        args |= {"source": source, **({"checksums": sha256} if sha256 else {})}
    else:
        args = {**_lying(args), "path": str(path), **({"sha256": sha256[0]} if sha256 else {})}
        name = name or path.name.removesuffix(".gguf")
    args |= {
        key: value for key, value in {"name": name, "replicas": replicas, "description": description}.items() if value
    }
    client = api()
    following.opened(client, client.post("jobs", {"kind": "serve", "args": args}), detach=detach, as_json=as_json)


def _path(source: list[str]) -> Path | None:
    """A file of this machine: a path that begins with / . or ~, or one word that is a file here."""
    first = source[0]
    if len(source) > 1 or "://" in first:
        return None
    if first.startswith(("/", "./", "../", "~")) or Path(first).is_file():
        return Path(os.path.normpath(Path(first).expanduser().absolute()))
    return None


def _lying(args: dict[str, Any]) -> dict[str, Any]:
    """Of a file that lies on the nodes, context and slots are the profile's; the rest is of weights that are fetched."""
    shape = {key: args.pop(key) for key in ("context", "slots") if key in args}
    if args:
        option = {"quantization": "quant", "file_format": "format"}.get(next(iter(args)), next(iter(args)))
        text = f"--{option.replace('_', '-')} is for weights that are fetched: leave it out with a file of this machine"
        raise CliError(ExitCode.USAGE, text)
    return {"profile": shape} if shape else {}


COMMANDS: dict[str, Callable[..., None]] = {"serve": serve}
