"""`llmgw quota`: what organisations, teams and projects are guaranteed of the fleet, and may have at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, CliError, Column, ExitCode, api, part, print_json, show_list
from llmgw_site.lib.units import format_bytes, parse_bytes

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Capacity of organisations, teams and projects: guaranteed, limited, held, borrowed.",
)

Scope = Annotated[
    str,
    typer.Argument(
        metavar="SCOPE",
        help="Name, path (acme/search/web, search/web) or id of an organisation, team or project; or team:NAME.",
    ),
]
_HOW = "cores=N, memory=SIZE or cards:CLASS=N; may be repeated."
MOST = (1 << 53) - 1
"""The API takes no more of anything."""
KINDS = {"organisation": "organisations", "team": "teams", "project": "projects"}


def amount(name: str) -> Callable[[dict[str, Any]], list[str]]:
    """Cell of an amount: `2 L4`, `8 cores`, `64.0 GiB`."""
    return lambda row: words(row[name])


COLUMNS: tuple[Column, ...] = (
    ("scope", lambda row: " / ".join(row["path"])), "kind", ("guaranteed", amount("guarantee")), ("at most", amount("limit")),
    ("holds", amount("held")), ("borrowed", amount("borrowed")), "models",
)  # fmt: skip


@app.command("list")
def list_quotas(as_json: AsJson = False) -> None:
    """Scopes that have a quota, with what they hold."""
    rows = api().all("quotas")
    show_list(rows, COLUMNS, as_json=as_json, empty="No quotas yet: set one with `llmgw quota set`.")
    if not as_json:
        for text in dict.fromkeys(text for row in rows for text in row["problems"]):
            print(f"Cannot be given: {text}.")


@app.command("set")
def set_quota(
    scope: Scope,
    guarantee: Annotated[list[str] | None, typer.Option(help=f"What its models get in any case: {_HOW}")] = None,
    limit: Annotated[list[str] | None, typer.Option(help=f"What they may have at most: {_HOW}")] = None,
    why: Annotated[str, typer.Option(help="Reason, kept with the event.")] = "",
    as_json: AsJson = False,
) -> None:
    """Set a quota, in place of the one there may be. What is left out is neither guaranteed nor limited."""
    body = {"guarantee": read(guarantee or [], "--guarantee"), "limit": read(limit or [], "--limit"), "why": why}
    row = api().put(f"quotas/{part(scope)}", body)
    if as_json:
        print_json(row)
        return
    told = [f"{title} {', '.join(words(row[name]))}" for title, name in _TOLD if row[name]]
    print(f"The {row['kind']} {row['name']}: {'; '.join(told)}.")


@app.command()
def remove(scope: Scope) -> None:
    """Have a scope without guarantee and limit again."""
    api().delete(f"quotas/{part(scope)}")
    print(f"The quota of {scope} is removed.")


_TOLD = (("guaranteed", "guarantee"), ("at most", "limit"), ("holds", "held"))


def read(options: list[str], option: str) -> dict[str, Any]:
    """`cores=8`, `memory=64GiB`, `cards:NVIDIA L4=2` as the API's amount. Raises CliError."""
    found: dict[str, Any] = {}
    for text in options:
        name, equals, value = text.rpartition("=")
        try:
            if name.startswith("cards:") and name != "cards:":
                found.setdefault("cards", {})[name.removeprefix("cards:")] = _number(value)
                continue
            if not equals or name not in ("cores", "memory"):
                raise ValueError("write cores=N, memory=SIZE or cards:CLASS=N")
            found[name] = _number(value) if name == "cores" else _counted(parse_bytes(value))
        except ValueError as error:
            raise CliError(ExitCode.USAGE, f"{option} {text}: {error}") from None
    return found


def words(amounts: dict[str, Any]) -> list[str]:
    parts = [f"{count:g} {klass or 'unknown'}" for klass, count in amounts.get("cards", {}).items()]
    if "cores" in amounts:
        parts.append(f"{amounts['cores']} {'core' if amounts['cores'] == 1 else 'cores'}")
    if "memory" in amounts:
        parts.append(format_bytes(amounts["memory"]))
    return parts


def _number(value: str) -> int:
    if not value.strip().isdecimal():
        raise ValueError("a whole number from 0 on is needed")
    return _counted(int(value[:32]))


def _counted(value: int) -> int:
    if value > MOST:
        raise ValueError("no fleet has so much")
    return value
