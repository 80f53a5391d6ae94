"""`llmgw request`: one request, from the id that its client was told."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import AsJson, Column, api, part, print_json, show_item
from llmgw_site.cli.usage import amount
from llmgw_site.lib.units import format_seconds

app = typer.Typer(no_args_is_help=True, add_completion=False, help="One request: what became of it, where and when.")
WIDTH = 48
"""Characters of a timeline."""
WORDS = {
    "queue": "in the queue", "schedule": "until its place was found", "first_token": "until its first token", "answer": "until its end", "upstream": "until its end",
    "gateway": "at the gateway; sent to nobody",
}  # fmt: skip
Ref = Annotated[str, typer.Argument(metavar="ID", help="x-request-id of its answer, or the id of its record.")]


@app.command()
def request(ref: Ref, as_json: AsJson = False) -> None:
    """Follow one request: its time in parts, where it ran, whose it was, what it cost, its line of the access log."""
    found = api().get(f"requests/{part(ref)}")
    if as_json:
        print_json(found)
        return
    row = found["record"]
    scope = " / ".join(name for name in (found["organisation_name"], found["team_name"], found["project_name"]) if name)
    fields: list[Column] = [
        "request_id", "record_id", "started_at", "endpoint", ("key", lambda row: " ".join(filter(None, (row["key_prefix"], found["key_name"])))),
        ("scope", lambda row: scope or row["project_id"]), ("user", lambda row: found["user_name"] or row["user"]), "model_asked",
        *(["alias_target"] if row["alias_target"] else []), "model_served",
        ("ran on", lambda row: " ".join(filter(None, (found["node_name"] or row["node_id"], row["replica_id"])))),
        "outcome", "status", "code", "finish_reason", ("tokens", _tokens),
        *([("sound", lambda row: f"{row['audio_seconds']} s")] if row["audio_seconds"] is not None else []),
        ("cost", lambda row: amount(row["cost"], found["currency"])),
    ]  # fmt: skip
    show_item(row, as_json=False, fields=fields)
    if found["spans"]:
        print()
    for text in timeline(found["spans"]):
        print(text)
    print()
    print(json.dumps({name: value for name, value in found["line"].items() if value is not None}))
    if found["others"]:
        print(f"\nMore requests have this id, which its client chose: {', '.join(found['others'])}.")


def timeline(spans: list[dict[str, Any]]) -> list[str]:
    """A bar a line, each as long as its share of the whole."""
    whole = sum(span["length_s"] for span in spans) or 1.0
    lines = []
    for span in spans:
        begin = round(span["start_s"] / whole * WIDTH)
        end = max(begin + 1, round((span["start_s"] + span["length_s"]) / whole * WIDTH))
        bar = (" " * begin + "█" * (end - begin))[-WIDTH:]
        lines.append(f"{bar:<{WIDTH}}  {format_seconds(span['length_s']):>8} {WORDS.get(span['name'], span['name'])}")
    return lines


def _tokens(row: dict[str, Any]) -> str:
    if row["prompt_tokens"] is None and row["completion_tokens"] is None:
        return "-"
    told = [f"{'?' if row['prompt_tokens'] is None else row['prompt_tokens']} in"]
    told += [f"{row['cached_tokens']} of them from the cache"] if row["cached_tokens"] else []
    told += [f"{row['completion_tokens'] or 0} out{' (estimated)' if row['estimated'] else ''}"]
    told += [f"{row['reasoning_tokens']} of them reasoning"] if row["reasoning_tokens"] else []
    return ", ".join(told)
