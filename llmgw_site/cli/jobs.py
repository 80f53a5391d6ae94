"""`llmgw jobs [ID]`: long pieces of work, their steps, and how far they are."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmgw_site.cli import following
from llmgw_site.cli.client import AsJson, CliError, ExitCode, ago, api, part, show_item, show_list

app = typer.Typer(no_args_is_help=False, help="Jobs: long pieces of work with steps and progress.")


@app.command()
def jobs(
    job_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The job to show; none: list them.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the job has ended.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Ask for the job's end.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="Have a failed job go on at the step that failed.")] = False,
    state: Annotated[str | None, typer.Option("--state", help="Only jobs in this state, when listing.")] = None,
    as_json: AsJson = False,
) -> None:
    """List jobs, or show one with its steps. With --follow ends with 1 if the job did not succeed."""
    client = api()
    if job_id is None:
        if follow or cancel or retry:
            raise CliError(ExitCode.USAGE, "which job? `llmgw jobs` lists them, `llmgw jobs ID --follow` follows one")
        show_list(
            client.all("jobs", state=state),
            [
                "id",
                "kind",
                "subject",
                "state",
                ("step", _step),
                ("opened", lambda job: ago(job["created_at"])),
                "message",
            ],
            as_json=as_json,
            empty="no jobs",
        )
        return
    path = f"jobs/{part(job_id)}"
    if cancel or retry:
        client.post(f"{path}/{'cancel' if cancel else 'retry'}")
    job = following.follow(client, path, quiet=as_json) if follow else client.get(path)
    if as_json:
        show_item(job, as_json=True)
    elif not follow:
        show_item(job, as_json=False, fields=["id", "kind", "subject", "state", "actor", "created_at", "message"])
        for step in job["steps"]:
            print(following.line(step))
        if job["result"]:
            following.show_result(job["result"])
        if job.get("cancel_requested") and job["state"] in ("queued", "running"):
            print("Its end was asked for: it ends with what it is doing now, and takes back what it began.")
    if follow:
        following.ended(job)


def _step(job: dict[str, Any]) -> str:
    """Where an open job is."""
    now = next((step for step in job["steps"] if step["state"] == "running"), None)
    done = sum(step["state"] == "done" for step in job["steps"])
    return f"{done}/{len(job['steps'])}" + (f" {now['title']} {now['progress']:.0%}" if now else "")
