"""What people and scripts are told once llmgw is ready."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from llmgw_site.cli.client import read_env_file
from llmgw_site.lib.config import load
from llmgw_site.lib.errors import Refused
from llmgw_site.up import http, quickstart
from llmgw_site.up.supervisor import Supervisor

SECRETS = {
    "admin_user": "admin",
    "admin_password": "it's a $PASSWORD",
    "admin_token": "at-llmgw-x",
    "api_key": "sk-llmgw-y",
}


def test_the_env_file_is_private_and_a_shell_reads_back_what_was_written(tmp_path: Path) -> None:
    config = load({"LLMGW_DATA": str(tmp_path)})
    quickstart.write_env(config, SECRETS)
    path = quickstart.env_path(config)
    assert path.stat().st_mode & 0o777 == 0o600
    told = subprocess.run(
        ["bash", "-c", f'. {shlex.quote(str(path))}; printf "%s|%s" "$LLMGW_ADMIN_PASSWORD" "$LLMGW_MODEL"'],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert told == "it's a $PASSWORD|smollm2-135m-instruct"
    assert read_env_file(path)["LLMGW_ADMIN_PASSWORD"] == SECRETS["admin_password"]
    assert set(read_env_file(path)) == {
        "LLMGW_URL", "LLMGW_API_KEY", "LLMGW_MODEL", "LLMGW_ADMIN_USER", "LLMGW_ADMIN_PASSWORD", "LLMGW_ADMIN_TOKEN",
    }  # fmt: skip


def test_the_curl_line_survives_a_paste(tmp_path: Path) -> None:
    words = shlex.split(
        quickstart.curl(load({"LLMGW_DATA": str(tmp_path)}), "sk-llmgw-y", "what's 2+3?").replace("\\\n", " ")
    )
    assert words[:2] == ["curl", "http://127.0.0.1:8800/v1/chat/completions"]
    assert json.loads(words[-1])["messages"][0]["content"] == "what's 2+3?"


def test_the_weights_are_found_in_their_package_without_importing_it(tmp_path: Path) -> None:
    import sys

    assert quickstart.weights(load({"LLMGW_DATA": str(tmp_path)})).stat().st_size > 90_000_000
    assert quickstart.PACKAGE not in sys.modules


def test_missing_weights_are_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="LLMGW_QUICKSTART=0"):
        quickstart.weights(load({"LLMGW_DATA": str(tmp_path), "LLMGW_QUICKSTART_WEIGHTS": str(tmp_path / "none")}))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"replicas": 1}, ""),
        ({"replicas": 0, "max_replicas": 1}, ""),  # our question starts it
        ({"replicas": 0, "max_replicas": None}, "is set to 0 replicas"),
        ({"replicas": 0, "max_replicas": 0}, "is set to 0 replicas"),
        ({"replicas": 1, "enabled": False}, "is disabled"),
    ],
)
def test_a_model_that_an_operator_left_without_replicas_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fields: dict[str, object], said: str
) -> None:
    row = {"name": "smollm2-135m-instruct", "enabled": True, **fields}
    asked = {"/api/v1/models?name=smollm2-135m-instruct": {"results": [row]}, "/v1/models": {},
             "/v1/chat/completions": {"choices": [{"message": {"content": "5"}}]}}  # fmt: skip
    monkeypatch.setattr(http, "call", lambda where, method, path, **_: http.Answer(200, asked[path]))
    told: list[str] = []
    terminal = SimpleNamespace(say=told.append, waiting=told.append)
    guide = quickstart.Quickstart(load({"LLMGW_DATA": str(tmp_path)}), SECRETS, terminal)  # type: ignore[arg-type]
    assert asyncio.run(guide.until_answered()) == (None if said else "5")
    assert [said in text for text in told] == ([True] if said else [])


def test_a_parked_model_is_told_with_its_cause_and_waited_for_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(where: object, method: str, path: str, **_: object) -> http.Answer:
        if path == "/v1/chat/completions":
            return http.Answer(503, {"error": {"code": "model_parked", "message": "the file is broken"}})
        rows = [{"name": "smollm2-135m-instruct", "enabled": True, "replicas": 1}]
        return http.Answer(200, {"results": rows})

    monkeypatch.setattr(http, "call", call)
    told: list[str] = []
    terminal = SimpleNamespace(say=told.append, waiting=told.append)
    guide = quickstart.Quickstart(load({"LLMGW_DATA": str(tmp_path)}), SECRETS, terminal)  # type: ignore[arg-type]
    assert asyncio.run(asyncio.wait_for(guide.until_answered(), 60)) is None
    assert told == ["the file is broken"]


def test_weights_that_are_not_there_leave_a_console_to_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load({"LLMGW_DATA": str(tmp_path), "LLMGW_QUICKSTART_WEIGHTS": str(tmp_path / "none.gguf")})
    monkeypatch.setattr(http, "call", lambda where, method, path, **_: http.Answer(200, {"results": []}))
    monkeypatch.setattr(Supervisor, "_has", lambda *_: True)
    told: list[str] = []
    terminal = SimpleNamespace(say=told.append, waiting=told.append, block=told.append)
    asyncio.run(Supervisor(config, terminal, keep_engines=False)._announce(SECRETS))  # type: ignore[arg-type]
    why, rest = told
    assert "LLMGW_QUICKSTART=0" in why
    assert rest.startswith(
        "llmgw runs, but its model does not. Console: http://127.0.0.1:8800/ as admin / it's a $PASSWORD"
    )
    assert not quickstart.env_path(config).exists()


def test_what_a_job_waits_for_is_its_running_step_or_the_one_to_come() -> None:
    def doing(*states: str) -> str:
        steps = [{"number": n, "title": f"Step {n}", "detail": "half", "state": s} for n, s in enumerate(states, 1)]
        return quickstart._doing({"steps": steps})

    assert doing() == "the job to be closed"
    assert doing("waiting", "waiting") == "a worker to take the job"
    assert doing("running", "waiting") == "Step 1: half"
    assert doing("done", "waiting") == "Step 2"
    assert doing("done", "done") == "the job to be closed"
