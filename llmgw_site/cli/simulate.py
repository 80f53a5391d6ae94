"""`llmgw simulate`: what the scheduler would do with a fleet. It needs no server and changes nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.domain.simulation.case import Case
from cluster.domain.simulation.describe import BadCase, described
from cluster.domain.simulation.random_case import random_case
from cluster.domain.simulation.report import report
from cluster.domain.simulation.run import EPOCH, Outcome, Simulation
from llmgw_site.cli.client import AsJson, CliError, ExitCode, print_json

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=False, help="Try the scheduler on a fleet that is only described.")
EXAMPLE = {
    "for": "2 h",
    "nodes": [
        {"name": "big", "count": 4, "cores": 96, "memory": "512 GiB", "fabric": "ib-0",
         "cards": [{"class": "H100", "memory": "80 GiB", "count": 8}]},
        {"name": "small", "count": 6, "cores": 16, "memory": "64 GiB"},
    ],
    "scopes": [{"name": "research", "guarantee": {"cards": {"H100": 8}}}],
    "models": [
        {"name": "chat", "base": 2, "max": 6, "class": "critical", "slots": 16, "start": "2 min",
         "load": {"kind": "wave", "rate": 12, "low": 1},
         "profiles": [{"engine": "vllm", "cards": 4, "card_memory": "200 GiB", "even": True, "cores": 8}]},
        {"name": "batch", "base": 24, "class": "opportunistic", "owner": "research",
         "profiles": [{"cards": 1, "card_memory": "60 GiB", "cores": 2}]},
        {"name": "tiny", "base": 0, "max": 1, "rest_after": "10 min", "load": {"kind": "bursts", "rate": 0.2},
         "profiles": [{"memory": "4 GiB", "cores": 4}]},
    ],
    "happenings": [
        {"at": "40 min", "what": "node_off", "node": "big0"},
        {"at": "60 min", "what": "node_on", "node": "big0"},
    ],
}  # fmt: skip
"""Printed by `--example`, and tried by a test."""


@app.command()
def simulate_command(
    file: Annotated[Path | None, typer.Argument(help="A description in JSON; without one, a fleet by chance.")] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Of a fleet by chance, 1 if left out; equal seeds give equal runs.")
    ] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, max=100_000, help="How many, of a fleet by chance.")
    ] = None,
    models: Annotated[
        int | None, typer.Option("--models", min=1, max=10_000, help="How many, of a fleet by chance.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=0.01, max=10_000, help="How long, of a fleet by chance; 1 if left out."),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Show every decision with its reason.")] = False,
    example: Annotated[bool, typer.Option("--example", help="Print a description to start from.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try the scheduler on a fleet that is only described: utilisation, waiting, preemptions, violations.

    The same functions decide as in the cluster, with a clock that is a number. Ends with 1 where a rule was broken.
    """
    if example:
        print(json.dumps(EXAMPLE, indent=2))
        return
    chance = {"--seed": seed, "--nodes": nodes, "--models": models, "--hours": hours}
    for option, value in chance.items():
        if file is not None and value is not None:
            raise CliError(ExitCode.USAGE, f"{option} is of a fleet by chance: {file} says that itself")
    try:
        if file is None:
            case = random_case(1 if seed is None else seed, nodes=nodes, models=models, hours=hours or 1.0)
        else:
            case = described(_read(file))
    except BadCase as error:
        raise CliError(ExitCode.USAGE, f"{file}: {error}") from None
    outcome = run_shown(case) if sys.stderr.isatty() else Simulation(case).run()
    if as_json:
        print_json(as_dict(outcome, log=log))
    else:
        if log:
            print("\n".join(outcome.log), end="\n\n")
        print(report(outcome))
    if outcome.violations:
        raise CliError(ExitCode.REFUSED, f"{len(outcome.violations)} times a rule of the scheduler was broken")


def run_shown(case: Case, console: Console | None = None) -> Outcome:
    """Run a case with a bar of how far it is, on standard error; gone when it ends."""
    from rich.console import Console
    from rich.progress import Progress

    simulation = Simulation(case)
    with Progress(console=console or Console(stderr=True), transient=True) as progress:
        for _ in progress.track(simulation.steps(), total=simulation.count, description="simulating"):
            pass
    return simulation.outcome()


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except OSError as error:
        raise CliError(ExitCode.NOT_FOUND, f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise CliError(ExitCode.USAGE, f"{file} is no JSON: {error}") from None
    except RecursionError:
        raise CliError(ExitCode.USAGE, f"{file} is no description: its JSON nests too deep") from None


def as_dict(outcome: Outcome, *, log: bool = False) -> dict[str, Any]:
    """The figures of a run, a value for each step in each series."""
    figures = outcome.figures
    series = ("cores", "memory", "cards", "ready", "wanted", "short", "backlog", "preempted")
    found: dict[str, Any] = {
        "name": outcome.case.name,
        "seed": outcome.case.seed,
        "hours": outcome.case.hours,
        "tick": outcome.case.tick,
        "nodes": len(outcome.case.nodes),
        "models": len(outcome.case.models),
        "decided": dict(figures.ops),
        "refused": figures.refused,
        "waited": dict(figures.waits),
        "longest_short": figures.longest,
        "series": {name: getattr(figures, name) for name in series},
        "violations": [{"at": item.at - EPOCH, "rule": item.rule, "text": item.text} for item in outcome.violations],
    }
    return found | {"log": list(outcome.log)} if log else found
