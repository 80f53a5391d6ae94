"""The command line as people meet it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw_site.cli.main import NOUNS
from llmgw_site.lib.config import load
from tests.llmgw_site.cli.conftest import Llmgw
from tests.processes import free_port

SERVICES = ("up", "gateway", "web", "agent", "worker", "check")


def llmgw(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value for name, value in os.environ.items() if not name.startswith("LLMGW_") or name == "LLMGW_TEST_RUN"
    }
    code = "from llmgw_site.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *args], capture_output=True, text=True, timeout=60, env={**env, **environ}
    )


def test_help_lists_every_command() -> None:
    done = llmgw("--help")
    assert done.returncode == 0
    assert [name for name in (*SERVICES, *NOUNS) if f" {name} " not in done.stdout] == []


@pytest.mark.parametrize("noun", [*NOUNS, "up"])
def test_every_command_has_help(noun: str, command: Llmgw) -> None:
    done = command(noun, "--help")
    assert done.code == 0, done.err
    assert f"Usage: llmgw {noun}" in done.out


@pytest.mark.parametrize("args", [("modle",), ("up", "--nonsense"), ("model", "nonsense")])
def test_a_typo_is_a_usage_error_with_help(args: tuple[str, ...]) -> None:
    done = llmgw(*args)
    assert done.returncode == 2
    assert "--help" in done.stderr or "-h" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_near_miss_names_what_was_meant() -> None:
    assert "model" in llmgw("modle").stderr


def test_the_gateway_is_told_which_nodes_may_fetch_weights_from_it(
    command: Llmgw, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMGW_WEIGHTS_CLIENTS", "")  # put back afterwards
    became: list[tuple[str, ...]] = []

    def become(_: str, args: list[str]) -> None:
        became.append((*args[-1:], *load().weights_clients))

    monkeypatch.setattr(os, "execv", become)
    assert command("gateway", "--api-client", "worker-1", "--api-client", "worker-2").code == 0
    assert became == [("gateway", "worker-1", "worker-2")]


def test_a_wrong_setting_is_one_line_with_the_way_out() -> None:
    done = llmgw("gateway", LLMGW_PORT="high")
    assert done.returncode == 2
    assert done.stderr == "llmgw: LLMGW_PORT='high' was refused: write a port number from 1 to 65535\n"


def test_no_server_is_exit_code_3(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = llmgw("status", LLMGW_URL=url, LLMGW_ADMIN_TOKEN="at-llmgw-x", LLMGW_DATA=str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert "does not answer" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_address_is_exit_code_2(tmp_path: Path) -> None:
    assert llmgw("status", LLMGW_DATA=str(tmp_path)).returncode == 2


def test_neither_help_nor_the_service_commands_load_django_or_an_http_client() -> None:
    code = "import sys, llmgw_site.cli.main, llmgw_site.cli.services; print(*sys.modules)"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    assert loaded & {"django", "httpx", "rich", "uvicorn", "celery", "asyncio"} == set()


def test_it_starts_quickly() -> None:
    """In time of the processor: whoever else computes beside us does not count."""

    def spent() -> float:
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    takes = []
    for _ in range(3):
        before = spent()
        llmgw("check", "--help")
        takes.append(spent() - before)
    assert min(takes) < 0.6, takes
