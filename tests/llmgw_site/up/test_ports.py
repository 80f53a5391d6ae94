"""Taken and impossible ports are named before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path

from llmgw_site.lib.config import Config, load
from llmgw_site.up import ports
from tests.processes import free_port


def config(tmp_path: Path, **more: str) -> Config:
    numbers = {name: str(free_port()) for name in ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")}
    return load({"LLMGW_DATA": str(tmp_path), **numbers, **more})


def test_free_ports_are_no_problem(tmp_path: Path) -> None:
    assert ports.problems(config(tmp_path)) == []


def test_a_taken_port_says_which_and_how_to_choose_another(tmp_path: Path) -> None:
    wanted = config(tmp_path)
    with socket.create_server(("127.0.0.1", wanted.node_port)):
        (problem,) = ports.problems(wanted)
    assert f"port {wanted.node_port} of 127.0.0.1 (node listener) is taken" in problem
    assert "LLMGW_NODE_PORT=" in problem


def test_the_advised_port_is_free(tmp_path: Path) -> None:
    wanted = config(tmp_path)
    with socket.create_server(("127.0.0.1", wanted.port)):
        (problem,) = ports.problems(wanted)
        advised = int(problem.partition("LLMGW_PORT=")[2].split()[0])
        socket.create_server(("127.0.0.1", advised)).close()


def test_an_address_of_another_machine_cannot_be_bound(tmp_path: Path) -> None:
    (problem,) = ports.problems(config(tmp_path, LLMGW_METRICS_HOST="192.0.2.1"))
    assert "this machine has no such address" in problem
    assert "LLMGW_METRICS_HOST" in problem


def test_a_connection_that_lingers_after_its_listener_is_no_problem(tmp_path: Path) -> None:
    wanted = config(tmp_path)
    with socket.create_server(("127.0.0.1", wanted.port)) as listener:
        client = socket.create_connection(("127.0.0.1", wanted.port))
        server, _ = listener.accept()
        server.close()  # closes first: TIME_WAIT stays on the server's port
        client.close()
    assert ports.problems(wanted) == []
