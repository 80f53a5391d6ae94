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
@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_violation_breaks_its_contract(contract: str, copy: Path) -> None:
    path, line = PLANTED[contract]
    file = copy / path
    file.write_text(f"{file.read_text()}\n{line}\n")
    done = lint_imports(copy)
    assert done.returncode != 0
    broken = [row for row in done.stdout.splitlines() if row.rstrip().endswith("BROKEN")]
    names = {"floors": "Floors", "rooms": "Rooms", "pure": "Pure", "tables": "Tables", "agent": "Agent",
             "datapath": "Data path", "cycles": "No cycles", "doors": "Doors"}  # fmt: skip
    assert any(row.startswith(names[contract]) for row in broken), done.stdout[-2000:]
