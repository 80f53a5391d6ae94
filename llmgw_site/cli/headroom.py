"""`llmgw headroom NAME`: how many more replicas of a model fit now, and who would make room for one more."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, api, print_json, show_list
from llmgw_site.lib.units import format_bytes

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="How many more replicas of a model fit, and who would make room."
)

FROM: tuple[Column, ...] = (
    "replica", "model", ("class", lambda row: row["klass"]), "node", ("requests", lambda row: row["in_flight"]),
    ("holds", lambda row: format_bytes(row["bytes"])),
)  # fmt: skip


@app.command()
def headroom(
    model: Annotated[str, typer.Argument(metavar="NAME", help="A model, by name or id.")], as_json: AsJson = False
) -> None:
    """How many more replicas of a model fit now, where, and which replicas would have to stop for one more."""
    client = api()
    row = client.find("models", model, noun="model")
    found = client.get(f"models/{row['id']}/headroom")
    if as_json:
        print_json(found)
        return
    print(f"{found['model']}: {fit(found)}.")
    if found["places"]:
        print()
        show_list(found["places"], ["node", "profile", ("more", lambda place: place["count"])], as_json=False, empty="")
    if found["message"]:
        print(f"\n{'Beyond these one' if found['fits'] else 'One'} more does not fit: {found['message']}.")
    if found["room_from"]:
        print("\nRoom for one more would be made by:")
        show_list(found["room_from"], FROM, as_json=False, empty="")
    elif found["reason"]:
        print(f"\n{found['reason']}.")


def fit(found: dict[str, Any]) -> str:
    """`3 more replicas fit, and its maximum allows 1 more`."""
    count, allowed = found["fits"], found["allowed"]
    if not count:
        return "no further replica fits now"
    text = f"{'' if found['counted'] else 'at least '}{count} more replica{' fits' if count == 1 else 's fit'}"
    return text if allowed >= count else f"{text}, and its maximum allows {f'{allowed} more' if allowed else 'no more'}"
