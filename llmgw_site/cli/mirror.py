"""`llmgw mirror list|add|remove`: the weights that the cluster keeps."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, ago, api, part, print_json, show_list
from llmgw_site.lib.units import format_bytes

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Weights that the cluster keeps, fetched once.")
Version = Annotated[str, typer.Argument(metavar="VERSION", help="Its id, or its name as `llmgw mirror list` shows it.")]


def _standing(row: dict[str, Any]) -> str:
    """Whole, how far, or why not."""
    if row["whole"]:
        return "whole"
    best = max(row["fetchers"], key=lambda item: (item["rate"] is not None, item["there"]), default=None)
    if best is None:
        return "nobody has it whole" if row["holders"] else "not begun"
    share = f"{best['there'] / best['size']:.0%} on {best['node']}" if best["size"] else f"begun on {best['node']}"
    if best["shared"]:
        share += f" ({format_bytes(best['shared'])} of {format_bytes(best['size'])} were here already)"
    if best["code"]:
        return f"{share}, {best['code']}"
    return f"{share}, {format_bytes(best['rate'])}/s" if best["rate"] else share


def _holders(row: dict[str, Any]) -> list[str]:
    return [item["node"] + ("" if item["heard"] else " (not heard)") for item in row["holders"]]


def _name(row: dict[str, Any]) -> str:
    """With the origin that was looked for, of plain addresses."""
    told = (
        f"from {row['origin']}" if row["origin"] else f"origin {row['trace'].replace('_', ' ')}" if row["trace"] else ""
    )
    return str(row["name"]) + (f" ({told}{', traced' if row['trace'] == 'traced' else ''})" if told else "")


COLUMNS: tuple[Column, ...] = (
    ("name", _name), "format", ("size", lambda row: format_bytes(row["size"])), ("now", _standing), ("on", _holders),
    ("used by", lambda row: row["users"]), ("added", lambda row: ago(row["created_at"])), "id",
)  # fmt: skip


@app.command("list")
def list_versions(
    files: Annotated[
        bool, typer.Option("--files", help="With the files of each, and why a node does not get on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Each version: how far it is, which nodes have it, what needs it."""
    rows = api().get("mirror")
    if as_json:
        print_json(rows)
        return
    show_list(
        rows,
        COLUMNS,
        as_json=False,
        empty="No weights are kept: `llmgw mirror add OWNER/REPOSITORY`, or `llmgw model serve`.",
    )
    for row in rows if files else ():
        print(f"\n{row['name']} ({row['id']})")
        for file in row["files"]:
            print(
                f"  {file['path']}, {format_bytes(file['size'])}"
                + (f", sha256 {file['sha256'][:16]}…" if file["sha256"] else "")
            )
        for item in row["fetchers"]:
            if item["message"]:
                print(f"  {item['node']}: {item['message']} [{item['code']}]")


@app.command()
def add(
    source: Annotated[list[str], typer.Argument(metavar="SOURCE…", help="OWNER/REPOSITORY (@REVISION), or addresses of files that make one model.")],
    quant: Annotated[str, typer.Option(help="The quantisation, such as Q4_K_M.")] = "",
    file: Annotated[str, typer.Option(help="The file, of several parts any of them.")] = "",
    format: Annotated[str, typer.Option(help="gguf or safetensors.")] = "",
    projector: Annotated[str, typer.Option(help="auto, none, or the file that lets it see or hear.")] = "",
    sha256: Annotated[list[str] | None, typer.Option(help="SHA-256 of each address, in the same order.")] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Have one model's files fetched and kept, before any model serves them."""
    body: dict[str, Any] = {"source": source}
    told = {"quantization": quant, "file": file, "file_format": format, "projector": projector, "checksums": sha256}
    body |= {name: value for name, value in told.items() if value}
    row = api().post("mirror", body)
    if as_json:
        print_json(row)
        return
    print(
        f"{row['name']}, {format_bytes(row['size'])} in {len(row['files'])} file{'s' if len(row['files']) != 1 else ''}: {_standing(row)}."
    )
    if not row["whole"]:
        print("A node with the role data fetches it; `llmgw mirror list` shows how far it is.")


@app.command()
def remove(version: Version) -> None:
    """Keep a version no longer: nodes delete its files. Refused while a model needs it."""
    client = api()
    rows = [row for row in client.get("mirror") if version in (row["id"], row["name"])]
    if len(rows) > 1:
        raise CliError(
            ExitCode.REFUSED,
            f"{len(rows)} versions are named {version}: give the id ({', '.join(row['id'] for row in rows)})",
        )
    if not rows:
        raise CliError(ExitCode.NOT_FOUND, f"there are no weights {version}: `llmgw mirror list` names them")
    client.delete(f"mirror/{part(rows[0]['id'])}")
    print(f"{rows[0]['name']} is kept no longer; {format_bytes(rows[0]['size'])} are freed on each node that has it.")
