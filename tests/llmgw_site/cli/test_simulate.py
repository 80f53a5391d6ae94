"""`llmgw simulate` as people meet it: it needs no server."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cluster.domain.simulation.random_case import random_case
from cluster.domain.simulation.run import simulate
from llmgw_site.cli.simulate import run_shown
from tests.llmgw_site.cli.conftest import Llmgw


def test_a_fleet_by_chance_is_tried_and_told_in_words(command: Llmgw) -> None:
    done = command("simulate", "--seed", "3", "--nodes", "4", "--models", "3", "--hours", "0.2")
    assert done.code == 0, done.err
    assert "seed 3: 4 nodes" in done.out
    assert "violations  none" in done.out


def test_equal_seeds_give_equal_figures(command: Llmgw) -> None:
    runs = [command("simulate", "--seed", str(seed), "--hours", "0.2", "--log", "--json").out for seed in (5, 5, 6)]
    assert runs[0] == runs[1]
    found = json.loads(runs[0])
    assert found["seed"] == 5
    assert found["violations"] == []
    assert len(found["series"]["ready"]) == 36
    assert found["log"]
    assert runs[2] != runs[0]


def test_the_example_can_be_printed_and_tried(command: Llmgw, tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text(command("simulate", "--example").out)
    done = command("simulate", str(file))
    assert done.code == 0, done.err
    assert "10 nodes, 32 cards" in done.out


def test_what_is_wrong_with_a_description_is_one_line_with_its_place(command: Llmgw, tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.write_text('{"nodes": [{"name": "a", "cores": "many"}]}')
    done = command("simulate", str(file))
    assert (done.code, "nodes[0].cores has to be a number" in done.err) == (2, True)
    file.write_text("{")
    assert command("simulate", str(file)).code == 2
    file.write_text("[" * 200_000)
    deep = command("simulate", str(file))
    assert (deep.code, "nests too deep" in deep.err) == (2, True)
    missing = command("simulate", str(tmp_path / "none.json"))
    assert (missing.code, "No such file" in missing.err) == (4, True)


@pytest.mark.parametrize(
    "args", [("--hours", "inf"), ("--hours", "1e300"), ("--nodes", "1000000000"), ("--models", "1000000000")]
)
def test_a_fleet_by_chance_has_bounds(command: Llmgw, args: tuple[str, str]) -> None:
    done = command("simulate", *args)
    assert (done.code, args[0] in done.err) == (2, True)


@pytest.mark.parametrize("option", ["--seed", "--nodes", "--models", "--hours"])
def test_a_description_takes_no_options_of_a_fleet_by_chance(command: Llmgw, tmp_path: Path, option: str) -> None:
    file = tmp_path / "fleet.json"
    file.write_text(command("simulate", "--example").out)
    done = command("simulate", str(file), option, "2")
    assert (done.code, f"{option} is of a fleet by chance" in done.err) == (2, True)


def test_a_terminal_is_shown_how_far_a_run_is_and_the_outcome_is_the_same() -> None:
    case, shown = random_case(5, nodes=4, models=3, hours=0.2), StringIO()
    outcome = run_shown(case, Console(file=shown, force_terminal=True, width=80, _environ={"TERM": "xterm"}))
    assert outcome.figures == simulate(case).figures
    assert "simulating" in shown.getvalue()
    assert "100%" in shown.getvalue()
