"""Each import contract really breaks when it is violated: a violation is planted in a copy of the tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("llmgw_site", "catalog", "cluster", "routing", "guard", "workers")

PLANTED = {
    "floors": ("catalog/selectors.py", "import cluster.selectors"),
    "rooms": ("catalog/selectors.py", "import catalog.services.keys"),
    "pure": ("cluster/domain/health.py", "import time"),
    "tables": ("workers/tasks/reconcile.py", "import cluster.models"),
    "agent": ("workers/agent/link.py", "import django.utils.timezone"),
    "datapath": ("routing/gateway/table.py", "import celery"),
    "cycles": ("catalog/domain/keys.py", "import catalog.services.keys"),
    "doors": ("workers/jobs.py", "import routing.gateway.app"),
}


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    tool = Path(sys.executable).with_name("lint-imports")
    return subprocess.run([tool, "--no-cache"], cwd=tree, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(TOP / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(TOP / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.slow
def test_the_tree_keeps_every_contract(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("planted", [set(PLANTED) - {"cycles"}, {"cycles"}], ids=["all but cycles", "cycles"])
def test_a_planted_violation_breaks_its_contract(planted: set[str], copy: Path) -> None:
    """Each is told with the line that was planted for it. A cycle would hide others: it has a tree of its own."""
    for contract in planted:
        path, line = PLANTED[contract]
        with (copy / path).open("a") as file:
            file.write(f"\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode != 0
    broken = [row for row in done.stdout.splitlines() if row.rstrip().endswith("BROKEN")]
    names = {"floors": "Floors", "rooms": "Rooms", "pure": "Pure", "tables": "Tables", "agent": "Agent",
             "datapath": "Data path", "cycles": "No cycles", "doors": "Doors"}  # fmt: skip
    for contract in planted:
        assert any(row.startswith(names[contract]) for row in broken), done.stdout[-2000:]
        path, line = PLANTED[contract]
        importer, imported = path.removesuffix(".py").replace("/", "."), line.split()[1].split(".")
        told = done.stdout.partition("Broken contracts")[2].partition(f"\n{names[contract]}")[2].partition("---\n\n")[2]
        found = told.partition("\n---")[0]
        edge = ".domain -> .services" if contract == "cycles" else f"{importer} -> {imported[0]}"
        assert edge in found, (contract, found[:2000])
