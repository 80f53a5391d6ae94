"""The wheel has everything: installed somewhere else, without the project's folder, the console has its pages."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
LOOK = """
import django, llmgw_site
from django.conf import settings
django.setup()
from django.contrib.staticfiles import finders
from django.template.loader import get_template
assert llmgw_site.__file__.startswith({installed!r}), llmgw_site.__file__
for path in {templates!r}:
    assert get_template(path).origin.name.startswith({installed!r}), path
for path in {static!r}:
    assert finders.find(path).startswith({installed!r}), path
"""


@pytest.mark.slow
def test_an_installed_wheel_has_its_templates_and_static_files(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=TOP, check=True, capture_output=True)
    installed = tmp_path / "site"
    zipfile.ZipFile(next(tmp_path.glob("*.whl"))).extractall(installed)
    names = {
        folder: [str(path.relative_to(TOP / folder)) for path in (TOP / folder).rglob("*") if path.is_file()]
        for folder in ("templates", "static")
    }
    assert all(names.values())
    environ = {**os.environ, "PYTHONPATH": str(installed), "LLMGW_DATA": str(tmp_path / "data")}
    environ["DJANGO_SETTINGS_MODULE"] = "llmgw_site.settings"
    code = LOOK.format(installed=str(installed), **names)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
