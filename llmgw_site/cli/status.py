"""`llmgw status`: every model against what it should have now, nodes and their problems, jobs, requests. Ends with 1 if a model is short."""

from __future__ import annotations

from typing import Any

import typer

from llmgw_site.cli.client import AsJson, CliError, ExitCode, api, print_json, show_list

app = typer.Typer(no_args_is_help=False, help="How the cluster stands.")


@app.command()
def status(as_json: AsJson = False) -> None:
    """How the cluster stands: 0 if every model has the replicas it should have now, 1 if one is short."""
    found = api().get("status")
    if as_json:
        print_json(found)
    else:
        nodes = ", ".join(f"{count} {state}" for state, count in found["nodes"].items() if count) or "none"
        jobs = ", ".join(f"{count} {state}" for state, count in found["jobs"].items() if count) or "none open"
        print(f"nodes     {nodes}")
        for item in found.get("problems", ()):
            print(f"problem   {item['node']}: {item['problem']}")
        print(f"jobs      {jobs}")
        print(f"requests  {found['requests_now']} now")
        print(f"version   {found['version']}, snapshot {found['snapshot'] or 'none yet'}")
        show_list(found["models"], ["name", ("replicas", ready), "reason"], as_json=False, empty="models    none")
    if found["short"]:
        names, short = ", ".join(found["short"]), len(found["short"])
        raise CliError(
            ExitCode.REFUSED, f"{short} of {len(found['models'])} models {'is' if short == 1 else 'are'} short: {names}"
        )


def ready(model: dict[str, Any]) -> str:
    """`1/1 ready`: replicas that answer, of those it should have now; `external` where a provider answers."""
    if model.get("external"):
        return "external"
    return f"{model['ready']}/{model['wanted']} ready"
