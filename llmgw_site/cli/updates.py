"""`llmgw model updates|update|rollback|origin` and `llmgw bench`: newer weights, the way back, and how fast a model is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer

from llmgw_site.cli import following
from llmgw_site.cli.client import Api, AsJson, CliError, Column, ExitCode, ago, api, part, print_json, show_list

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
UNKNOWN = {"not_found": "origin not found", "ambiguous": "origin ambiguous", "failed": "origin could not be looked for"}
"""What came of looking for an origin that nobody knows."""


def standing(row: dict[str, Any]) -> str:
    """Whether there is something newer, as far as is known."""
    if not row["repository"]:
        return UNKNOWN.get(row["trace"], "origin unknown")
    if row["code"]:
        return f"{row['code']}: {row['message']}"
    if not row["checked_at"]:
        return "not asked yet"
    if row["changed"]:
        count = len(row["changed"])
        return f"{count} file{'s' if count != 1 else ''} changed, at {row['newest'][:8]}"
    return "up to date"


COLUMNS: tuple[Column, ...] = (
    ("model", lambda row: row["name"] + (f" (adapter of {row['of']})" if "of" in row else "")), ("repository", lambda row: row["repository"] + (" (traced)" if row["trace"] == "traced" else "") or "-"), ("commit", lambda row: row["commit"][:8] or "-"),
    ("now", standing), ("asked", lambda row: ago(row["checked_at"]) if row["checked_at"] else "-"),
    ("back to", lambda row: row["previous"] or "-"),
)  # fmt: skip


def _rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each model, and below it its adapters."""
    return [item for row in rows for item in (row, *({**adapter, "of": row["name"]} for adapter in row["adapters"]))]


def updates(
    check: Annotated[bool, typer.Option("--check", help="Ask the registry now, for each.")] = False,
    as_json: AsJson = False,
) -> None:
    """Models and their adapters, and whether their files changed where they come from."""
    client = api()
    rows = client.get("updates")
    if check:
        for row in rows:
            if row["repository"]:
                with suppress(CliError):  # why it could not be asked stands in its row
                    client.post(f"models/{row['id']}/check-origin")
            for adapter in row["adapters"]:
                if adapter["repository"]:
                    with suppress(CliError):
                        client.post(f"models/{row['id']}/adapters/{adapter['id']}/check-origin")
        rows = client.get("updates")
    if as_json:
        print_json(rows)
        return
    show_list(_rows(rows), COLUMNS, as_json=False, empty="No model has weights of its own.")
    for row in _rows(rows):
        if row["trace_message"]:
            print(f"{row['name']}: {row['trace_message']}")


def update(model: Ref, detach: following.Detach = False, as_json: AsJson = False) -> None:
    """Fetch what a model's origin has now beside what it serves, then replace its replicas, one after the other. Adapters, too."""
    _job(model, "update", {}, detach=detach, as_json=as_json)


def rollback(model: Ref, detach: following.Detach = False, as_json: AsJson = False) -> None:
    """Go back to what a model served before its last update, without fetching. Adapters, too."""
    _job(model, "rollback", {}, detach=detach, as_json=as_json)


def origin(
    of: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="A model or an adapter, or a version as `llmgw mirror list` shows it; or the id."
        ),
    ],
    repository: Annotated[str, typer.Option(help="OWNER/REPOSITORY; left out: it is looked for.")] = "",
    commit: Annotated[str, typer.Option(help="A commit, maybe shortened, a branch or tag; left out: the newest.")] = "",
    as_json: AsJson = False,
) -> None:
    """Say where the weights of a model, of an adapter or of a version that is kept come from, or have it looked for. Every file has to be
    there at the same size."""
    client = api()
    found = client.post(f"{_whose(client, of)}/origin", {"repository": repository, "commit": commit})
    if as_json:
        print_json(found)
        return
    how = "as you say" if repository else "as was traced"
    where = found["origin"] if "origin" in found else f"{found['repository']} at {found['commit'][:12]}"
    print(f"{found['name']} comes from {where}, {how}.")


def _whose(client: Api, ref: str) -> str:
    """The path of the model, the adapter or the version of this name or id. Raises CliError."""
    rows = client.get("updates")
    if not any(ref in (row["id"], row["name"]) for row in rows):
        for row in rows:
            for adapter in row["adapters"]:
                if ref in (adapter["id"], adapter["name"]):
                    return f"models/{row['id']}/adapters/{adapter['id']}"
        kept = [row for row in client.get("mirror") if ref in (row["id"], row["name"])]
        if len(kept) > 1:
            ids = ", ".join(row["id"] for row in kept)
            raise CliError(ExitCode.REFUSED, f"{len(kept)} versions are named {ref}: give the id ({ids})")
        if kept:
            return f"mirror/{part(kept[0]['id'])}"
    return f"models/{client.find('models', ref, noun='model')['id']}"


def bench(
    model: Ref,
    ttft: Annotated[
        str, typer.Option(help="Time until the first token that counts as good, such as 2s or 500ms.")
    ] = "2s",
    seconds: Annotated[float | None, typer.Option(min=1, max=45, help="Seconds of each try.")] = None,
    most: Annotated[int | None, typer.Option(min=1, max=256, help="Requests at once of a replica, at most.")] = None,
    detach: following.Detach = False,
    as_json: AsJson = False,
) -> None:
    """Find out how many tokens a second a replica gives, and up to how many requests at once it answers in time.

    What is found is kept, for each profile and kind of hardware; the scheduler counts with it. Other requests suffer meanwhile.
    """
    body: dict[str, Any] = {"ttft": seconds_of("--ttft", ttft)}
    body |= {name: value for name, value in (("seconds", seconds), ("most", most)) if value}
    _job(model, "bench", body, detach=detach, as_json=as_json)


def seconds_of(option: str, text: str) -> float:
    """`2`, `2s`, `500ms`."""
    word = text.strip().lower()
    unit = 0.001 if word.endswith("ms") else 1.0
    try:
        value = float(word.removesuffix("ms").removesuffix("s")) * unit
    except ValueError:
        value = 0.0
    if not 0 < value < 3600:
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} is no time: write one like 2s or 500ms")
    return value


def adapter_job(client: Api, row: dict[str, Any], what: str, order: str, *, detach: bool, as_json: bool) -> None:
    """Update or roll back an adapter of this model, by name or id."""
    job = client.post(f"models/{row['id']}/adapters/{part(what)}/{order}")
    following.opened(client, job, detach=detach, as_json=as_json)


def _job(model: str, order: str, body: dict[str, Any], *, detach: bool, as_json: bool) -> None:
    client = api()
    if order in ("update", "rollback"):
        rows = client.get("updates")
        mine = [(row, item) for row in rows for item in row["adapters"] if model in (item["id"], item["name"])]
        if mine and not any(model in (row["id"], row["name"]) for row in rows):
            adapter_job(client, mine[0][0], mine[0][1]["id"], order, detach=detach, as_json=as_json)
            return
    row = client.find("models", model, noun="model")
    following.opened(client, client.post(f"models/{row['id']}/{order}", body), detach=detach, as_json=as_json)


COMMANDS: dict[str, Callable[..., None]] = {
    "updates": updates, "update": update, "rollback": rollback, "origin": origin,
}  # fmt: skip
app = typer.Typer(add_completion=False)
app.command("bench")(bench)
