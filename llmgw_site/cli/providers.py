"""`llmgw provider`: external OpenAI-compatible providers. A key comes from a file or standard input, never from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, ago, api, part, print_json, show_item, show_list

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="External providers that answer for models of the catalogue."
)

Ref = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name or id.")]
KeyFrom = Annotated[
    Path | None, typer.Option("--key-from", help="File on this machine to read the key from; - for standard input.")
]
NOUN = "provider"


def key(row: dict[str, Any]) -> str:
    """Where its key is; the key itself is never shown."""
    return f"file {row['api_key_file']}" if row["api_key_file"] else "kept" if row["key_set"] else "none"


COLUMNS: tuple[Column, ...] = (
    "name", "url", ("key", key), "enabled", ("added", lambda row: ago(row["created_at"])), "id",
)  # fmt: skip


@app.command("list")
def list_providers(as_json: AsJson = False) -> None:
    """All providers."""
    rows = api().all("providers")
    show_list(rows, COLUMNS, as_json=as_json, empty="No providers yet: add one with `llmgw provider add`.")


@app.command()
def show(provider: Ref, as_json: AsJson = False) -> None:
    """One provider, with the models that it answers for."""
    client = api()
    row = client.find("providers", provider, noun=NOUN)
    row["models"] = [item["name"] for item in client.all("models") if item["provider"] == row["id"]]
    show_item(row, as_json=as_json)


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="For people; clients never see it.")],
    url: Annotated[str, typer.Argument(help="Base of its OpenAI API, such as https://api.example.com/v1.")],
    key_from: KeyFrom = None,
    key_file: Annotated[
        str, typer.Option("--key-file", help="File with the key on the nodes that run cloud, read afresh for each use.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Add a provider. With --key-from its key is kept, sealed; with --key-file it stays on the cloud nodes."""
    body: dict[str, Any] = {"name": name, "url": url, "api_key_file": key_file}
    if key_from is not None:
        body["api_key"] = read_key(key_from)
    row = api().post("providers", body)
    if as_json:
        print_json(row)
    else:
        print(f"Added {row['name']} ({row['id']}), key: {key(row)}.")


@app.command("set-key")
def set_key(provider: Ref, key_from: KeyFrom = Path("-")) -> None:
    """Keep a key for a provider, in place of any other. It is read from standard input unless --key-from names a file."""
    client = api()
    row = client.find("providers", provider, noun=NOUN)
    client.put(f"providers/{part(row['id'])}/key", {"key": read_key(key_from or Path("-"))})
    print(f"The key of {row['name']} is set.")


@app.command("clear-key")
def clear_key(provider: Ref) -> None:
    """Forget the key of a provider."""
    client = api()
    row = client.find("providers", provider, noun=NOUN)
    client.delete(f"providers/{part(row['id'])}/key")
    print(f"The key of {row['name']} is forgotten.")


@app.command()
def remove(provider: Ref) -> None:
    """Remove a provider and its key. Refused while models are answered by it."""
    client = api()
    row = client.find("providers", provider, noun=NOUN)
    client.delete(f"providers/{part(row['id'])}")
    print(f"Removed {row['name']}.")


def read_key(source: Path) -> str:
    """A key from a file or standard input; typed without showing it where that is a terminal."""
    try:
        if str(source) != "-":
            text = source.read_text()
        elif sys.stdin.isatty():
            text = str(typer.prompt("Key", hide_input=True, err=True))
        else:
            text = sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(ExitCode.USAGE, f"--key-from: {source} cannot be read ({error})") from None
    if not text.strip():
        raise CliError(ExitCode.USAGE, "there is no key in what was given: pipe it in, or name a file with --key-from")
    return text.strip()
