"""Staying with a job until it has ended: bars on a terminal, a line for each news where output goes elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmgw_site.cli.client import Api, CliError, ExitCode, part, print_json, show_item

if TYPE_CHECKING:
    from rich.table import Table

OPEN = ("queued", "running")
WELL = ("done", "waiting")
"""How a job ends that did its work."""
LOOK_EVERY = 0.5
INTERRUPTED = 130
_MARK = {"done": "+", "running": ">", "failed": "!", "skipped": "-", "waiting": " "}
_LOOK = {"done": "green", "running": "cyan", "failed": "red", "skipped": "dim", "waiting": "dim"}

Detach = Annotated[bool, typer.Option("--detach", help="Print the job's id and return at once.")]
"""The type of every `detach: Detach = False` option."""


def opened(client: Api, job: dict[str, Any], *, detach: bool, as_json: bool) -> None:
    """What every command does with the job that it opened. Ends with 1 if the job did not do its work."""
    if detach:
        print_json(job) if as_json else print(job["id"])
        return
    if not as_json:
        print(f"Job {job['id']}: {job['kind']} {job['subject']}", flush=True)
    told = follow(client, f"jobs/{part(job['id'])}", quiet=as_json)
    if as_json:
        print_json(told)
    elif told["state"] == "done" and told["result"]:
        print()
        show_result({key: value for key, value in told["result"].items() if key != "model_id"})
    elif told["state"] == "waiting":
        print(f"It waits: {told['message']}.")
    ended(told)


def show_result(result: dict[str, Any]) -> None:
    """What a job came to, for people."""
    show_item({key: _short(value) for key, value in result.items()}, as_json=False)


def _short(value: Any) -> Any:
    """A part of a result as a person reads it: figures with three digits after the point, an answer as its words and its rate."""
    if isinstance(value, float):
        return round(value, 3)
    parts = value if isinstance(value, list) else [value]
    return [_words(part) for part in parts] if all(isinstance(part, dict) for part in parts) else value


def _words(part: dict[str, Any]) -> str:
    if "text" not in part:
        return ", ".join(f"{key.replace('_', ' ')} {_short(value)}" for key, value in part.items())
    rate = part.get("tokens_per_second")
    return f"{part['text']!r}" + (f" ({rate:.0f} tokens/s)" if rate else "")


def ended(job: dict[str, Any]) -> None:
    """Raises CliError REFUSED where the job did not do its work."""
    if job["state"] not in WELL:
        raise CliError(ExitCode.REFUSED, f"the job has {job['state']}: {job['message'] or 'no reason given'}")


def follow(client: Api, path: str, *, quiet: bool) -> dict[str, Any]:
    """The job once it has ended. Ctrl-C ends the watching, not the job."""
    try:
        if quiet:
            return _until(client, path, lambda job: None)
        return _bars(client, path) if sys.stdout.isatty() else _lines(client, path)
    except KeyboardInterrupt:
        ref = path.rpartition("/")[2]
        print(f"\nThe job goes on: `llmgw jobs {ref} --follow` comes back to it, `llmgw jobs {ref} --cancel` ends it.")
        raise typer.Exit(INTERRUPTED) from None


def _until(client: Api, path: str, tell: Any) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = client.get(path)
        tell(job)
        if job["state"] not in OPEN:
            return job
        time.sleep(LOOK_EVERY)


def _lines(client: Api, path: str) -> dict[str, Any]:
    told: dict[int, str] = {}

    def tell(job: dict[str, Any]) -> None:
        for step in job["steps"]:
            text = line(step)
            if step["state"] != "waiting" and told.get(step["number"]) != text:
                told[step["number"]] = text
                print(text, flush=True)

    return _until(client, path, tell)


def _bars(client: Api, path: str) -> dict[str, Any]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(highlight=False), auto_refresh=False) as live:
        return _until(client, path, lambda job: live.update(bars(job), refresh=True))


def bars(job: dict[str, Any]) -> Table:
    """The steps of a job as they stand, the running ones with a bar."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 1))
    for _ in range(3):
        table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for step in job["steps"]:
        running = step["state"] == "running"
        look = _LOOK[step["state"]]
        bar: Any = ProgressBar(total=1.0, completed=step["progress"], width=24) if running else Text("")
        share = f"{step['progress']:.0%} " if running and step["progress"] else ""
        table.add_row(
            Text(_MARK[step["state"]], style=look),
            Text(step["title"], style="dim" if look == "dim" else ""),
            bar,
            Text(share + step["detail"], style="red" if look == "red" else "dim"),
        )
    return table


def line(step: dict[str, Any]) -> str:
    share = f" {step['progress']:.0%}" if step["state"] == "running" else ""
    detail = f": {step['detail']}" if step["detail"] else ""
    return f" {_MARK[step['state']]} {step['title']}{share}{detail}"
