"""The service commands: small processes, private sockets, wrong names."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_site.cli import services
from llmgw_site.lib.config import load
from llmgw_site.lib.errors import Refused


def modules_of(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "code", ["import routing.gateway.serve", "import workers.agent.__main__", "import llmgw_site.up.main"]
)
def test_what_a_node_runs_loads_no_django(code: str) -> None:
    assert modules_of(code) & {"django", "celery", "rest_framework", "channels", "redis", "typer"} == set()


def test_web_does_not_load_the_development_server() -> None:
    assert modules_of("import llmgw_site.asgi") & {"daphne", "twisted", "autobahn"} == set()


def test_the_socket_of_web_is_private_from_its_first_moment_and_takes_the_place_of_a_dead_one(tmp_path: Path) -> None:
    path = tmp_path / "web.sock"
    for _ in range(2):
        listener = services._listen(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        listener.listen()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            with pytest.raises(Refused, match="another `web`"):
                services._listen(path)
        listener.close()


def test_the_worker_logs_as_it_is_told(tmp_path: Path) -> None:
    command = services.worker_command(load({"LLMGW_DATA": str(tmp_path), "LLMGW_LOG_LEVEL": "warning"}))
    assert command[:4] == [sys.executable, "-P", "-m", "workers"]
    assert command[command.index("--loglevel") + 1] == "WARNING"


NAMES_TO_FIND = ("click", "celery", "kombu", "django", "workers", "catalog", "sqlite3", "uvicorn", "redis", "vine")
IMPORTS = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "llmgw_site.settings"
import django; django.setup()
from workers.celery import app
app.loader.import_default_modules()
app.loader.import_from_cwd("workers.tasks.sweep")
sys.exit(os.getcwd() in sys.path or "" in sys.path)
"""


@pytest.mark.parametrize("program", ["worker", "-c"])
def test_what_lies_in_the_folder_it_is_called_in_is_not_imported(tmp_path: Path, program: str) -> None:
    """Neither by the worker, nor by any other process that loads Django, and so our Celery app."""
    for name in NAMES_TO_FIND:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')")
    data = tmp_path / "data"
    command = services.worker_command(load({"LLMGW_DATA": str(data)}))
    command = [*command[:4], "report"] if program == "worker" else [sys.executable, "-P", "-c", IMPORTS]
    environ = {**os.environ, "LLMGW_DATA": str(data)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environ)
    assert done.returncode == 0, done.stderr


def test_an_unknown_service_is_a_usage_error() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "llmgw_site.cli.services", "nothing"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 2
    assert "gateway|web|agent|worker" in done.stderr
