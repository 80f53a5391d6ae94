"""The `llmgw` command against a running llmgw: in this process, since starting Python each time would take most of the time."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from llmgw_site.cli.main import main
from tests import tiny
from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]


def llmgw(stack: Stack, *args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """What the command does in the stack's environment. A defect is raised here, where `main` would print a line."""
    out, err = io.StringIO(), io.StringIO()
    environ = {**stack.environ, "LLMGW_DEBUG": "1"}
    status: Any = 0
    with (
        mock.patch.dict(os.environ, environ, clear=True), mock.patch("sys.argv", ["llmgw", *args]),
        mock.patch("sys.stdin", io.StringIO(stdin)), redirect_stdout(out), redirect_stderr(err),
    ):  # fmt: skip
        try:
            main()
        except SystemExit as end:
            status = end.code
    return subprocess.CompletedProcess(args, int(status or 0), out.getvalue(), err.getvalue())


def test_status_counts_models_against_what_they_should_have(stack: Stack) -> None:
    """As people start it, in a process of its own."""
    program = Path(sys.executable).with_name("llmgw")
    done = subprocess.run([program, "status"], env=stack.environ, capture_output=True, text=True, timeout=fair(60))
    assert done.returncode == 0, done.stderr
    assert MODEL in done.stdout
    assert json.loads(llmgw(stack, "status", "--json").stdout)


def test_models_are_listed_shown_added_and_removed(stack: Stack) -> None:
    assert MODEL in llmgw(stack, "model", "list").stdout
    assert [row["name"] for row in json.loads(llmgw(stack, "model", "list", "--json").stdout)].count(MODEL) == 1
    assert json.loads(llmgw(stack, "model", "show", MODEL, "--json").stdout)["name"] == MODEL
    missing = llmgw(stack, "model", "show", "none")
    assert missing.returncode == 4, missing
    path = str(tiny.tiny_gguf(name="tiny-cli"))
    added = llmgw(stack, "model", "add", "tiny-cli", path)
    assert added.returncode == 0, added.stderr + added.stdout
    wait_for(lambda: stack.answers("tiny-cli"), seconds=fair(30), what="the added model to answer", every=0.2)
    again = llmgw(stack, "model", "add", "tiny-cli", path)
    assert again.returncode == 1, again
    removed = llmgw(stack, "model", "remove", "tiny-cli")
    assert removed.returncode == 0, removed.stderr + removed.stdout
    assert llmgw(stack, "model", "show", "tiny-cli").returncode == 4


def test_a_key_is_shown_once_opens_and_is_revoked(stack: Stack) -> None:
    made = llmgw(stack, "key", "create", "cli-test", "--json")
    assert made.returncode == 0, made.stderr
    key = json.loads(made.stdout)
    wait_for(lambda: stack.chat(key=key["key"]).status_code == 200, seconds=fair(30), what="the key to open", every=0.1)
    listed = llmgw(stack, "key", "list")
    assert "cli-test" in listed.stdout
    assert key["key"] not in listed.stdout
    assert llmgw(stack, "key", "revoke", key["id"]).returncode == 0
    wait_for(
        lambda: stack.chat(key=key["key"]).status_code == 401, seconds=fair(30), what="the key to be refused", every=0.1
    )


def test_a_token_acts_as_its_user(stack: Stack) -> None:
    made = llmgw(stack, "token", "create", "cli-token", "--json")
    assert made.returncode == 0, made.stderr
    token = json.loads(made.stdout)["token"]
    stack.environ["LLMGW_ADMIN_TOKEN"], stack.environ["LLMGW_URL"] = token, stack.url
    try:
        assert llmgw(stack, "status").returncode == 0
        stack.environ["LLMGW_ADMIN_TOKEN"] = "at-llmgw-" + "x" * 43
        assert llmgw(stack, "status").returncode == 1
    finally:
        del stack.environ["LLMGW_ADMIN_TOKEN"], stack.environ["LLMGW_URL"]


def test_jobs_are_listed_and_one_is_shown_with_its_steps(stack: Stack) -> None:
    jobs = json.loads(llmgw(stack, "jobs", "--json").stdout)
    job = next(row for row in jobs if row["subject"] == MODEL)
    shown = llmgw(stack, "jobs", job["id"])
    assert shown.returncode == 0, shown.stderr
    assert job["steps"][0]["title"] in shown.stdout
    assert llmgw(stack, "jobs", "job_none").returncode == 4


def test_the_node_is_listed_with_its_modules_and_taken_in_and_out_of_maintenance(stack: Stack) -> None:
    (node,) = json.loads(llmgw(stack, "node", "list", "--json").stdout)
    assert {"inference", "router"} <= {item["name"] for item in node["modules"] if item["state"] == "running"}
    cordoned = llmgw(stack, "node", "cordon", node["name"], "--reason", "a test")
    assert cordoned.returncode == 0, cordoned.stderr
    try:
        assert "cordoned: a test" in llmgw(stack, "node", "show", node["name"]).stdout
        assert stack.answers()
    finally:
        assert llmgw(stack, "node", "uncordon", node["name"]).returncode == 0
    assert llmgw(stack, "node", "cordon", "none").returncode == 4


def test_a_join_token_is_printed_as_the_one_command_and_revoked(stack: Stack) -> None:
    done = llmgw(stack, "node", "token", "--hours", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("llmgw node join llmgw-join.")
    assert "LLMGW_NODE_HOST" in done.stderr  # it listens on this machine only
    token = done.stdout.split()[3].split(".")[1]
    assert token in llmgw(stack, "node", "token", "--list").stdout
    assert llmgw(stack, "node", "token", "--revoke", token).returncode == 0


def test_the_setup_is_applied_and_cleared(stack: Stack) -> None:
    name = json.loads(llmgw(stack, "node", "list", "--json").stdout)[0]["name"]
    before = llmgw(stack, "setup", "show").stdout
    try:
        wanted = {"nodes": {name: ["controller", "edge", "router", "inference", "data"]}}
        applied = llmgw(stack, "setup", "apply", "-", stdin=json.dumps(wanted))
        assert applied.returncode == 0, applied.stderr
        refused = llmgw(stack, "setup", "apply", "-", stdin=json.dumps({"nodes": {name: ["edge", "router"]}}))
        assert (refused.returncode, "controller" in refused.stderr) == (1, True)
        assert json.loads(llmgw(stack, "setup", "show").stdout)["nodes"] == wanted["nodes"]
    finally:
        assert llmgw(stack, "setup", "apply", "-", stdin="{}").returncode == 0
    assert json.loads(before)["nodes"] == json.loads(llmgw(stack, "setup", "show").stdout)["nodes"] == {}


def test_the_strategy_is_shown_and_set_and_peers_are_shown(stack: Stack) -> None:
    before = json.loads(llmgw(stack, "strategy", "--json").stdout)
    try:
        assert "strategy  random" in llmgw(stack, "strategy", "random", "--affinity").stdout
        assert json.loads(llmgw(stack, "strategy", "--json").stdout)["affinity"] is True
        wrong = llmgw(stack, "strategy", "best")
        assert (wrong.returncode, "'best'" in wrong.stderr) == (1, True)
    finally:
        assert llmgw(stack, "strategy", before["strategy"], "--no-affinity").returncode == 0
    wait_for(  # one that was taken out a moment ago may still stand in the gateway's map
        lambda: json.loads(llmgw(stack, "peers", "--json").stdout) == [], what="no peers", every=0.1
    )
    assert llmgw(stack, "peers", "--model", "none").returncode == 4


def test_check_finds_a_running_stack_well(stack: Stack) -> None:
    done = llmgw(stack, "check")
    assert done.returncode == 0, done.stdout
