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


def test_every_module_says_what_it_is_for() -> None:
    silent = []
    for path in SOURCES:
        source = path.read_text()
        empty = path.name == "__init__.py" and not source.strip() and path.parent.name in ("management", "commands")
        if not (empty or path.match("migrations/[0-9]*.py") or ast.get_docstring(ast.parse(source))):
            silent.append(named(path))
    assert silent == [], "no docstring"


def test_no_file_is_longer_than_a_sitting() -> None:
    long = [named(path) for path in SOURCES if len(path.read_text().splitlines()) > HARD_CAP]
    assert long == [], "cut them along their nouns"


def test_importing_a_package_starts_nothing() -> None:
    for package in PACKAGES:
        body = ast.parse((TOP / package / "__init__.py").read_text()).body
        assert all(isinstance(node, ast.Expr) for node in body), f"{package}/__init__.py holds more than its docstring"


@pytest.mark.parametrize("module", ["workers.agent.__main__", "routing.gateway.serve", "llmgw_site.cli.main"])
def test_a_node_needs_no_django(module: str) -> None:
    code = f"import sys, {module}; bad = [m for m in ('django', 'celery', 'channels') if m in sys.modules]; sys.exit(str(bad) if bad else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
