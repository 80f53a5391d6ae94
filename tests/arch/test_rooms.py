"""The shape of the tree: every package says what it is for, no file outgrows a sitting, doors stay where they are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
PACKAGES = ("llmgw_site", "catalog", "cluster", "routing", "guard", "workers")
SOURCES = sorted(path for package in PACKAGES for path in (TOP / package).rglob("*.py"))
HARD_CAP = 450


def named(path: Path) -> str:
    return str(path.relative_to(TOP))


@pytest.mark.parametrize("path", [p for p in SOURCES if not p.match("migrations/[0-9]*.py")], ids=named)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    source = path.read_text()
    if path.name == "__init__.py" and not source.strip() and path.parent.name in ("management", "commands"):
        return
    assert ast.get_docstring(ast.parse(source)), f"{named(path)} has no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=named)
def test_no_file_is_longer_than_a_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= HARD_CAP, f"{named(path)}: cut it along its nouns"


def test_importing_a_package_starts_nothing() -> None:
    for package in PACKAGES:
        body = ast.parse((TOP / package / "__init__.py").read_text()).body
        assert all(isinstance(node, ast.Expr) for node in body), f"{package}/__init__.py holds more than its docstring"


@pytest.mark.parametrize("module", ["workers.agent.__main__", "routing.gateway.serve", "llmgw_site.cli.main"])
def test_a_node_needs_no_django(module: str) -> None:
    code = f"import sys, {module}; bad = [m for m in ('django', 'celery', 'channels') if m in sys.modules]; sys.exit(str(bad) if bad else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
