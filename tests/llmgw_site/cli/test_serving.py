"""`llmgw model serve`: what it asks for, how it stays with the job, how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cluster.models import Job
from llmgw_site.cli import following
from tests.llmgw_site.cli.conftest import Llmgw, Server


def a_job(state: str, *steps: tuple[str, str, float, str], **fields: Any) -> dict[str, Any]:
    return {
        "id": "job_1", "kind": "serve", "subject": "m", "state": state, "message": "", "result": {},
        "steps": [
            {"number": at, "title": title, "state": how, "progress": progress, "detail": detail}
            for at, (title, how, progress, detail) in enumerate(steps, start=1)
        ],
        **fields,
    }  # fmt: skip


@pytest.fixture
def asked(server: Server, command: Llmgw, monkeypatch: pytest.MonkeyPatch) -> Llmgw:
    monkeypatch.setenv("LLMGW_URL", server.url)
    monkeypatch.setenv("LLMGW_ADMIN_TOKEN", "t")
    server.answers["POST /api/v1/jobs"] = (201, a_job("queued"))
    return command


def sent(server: Server) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(server.seen[0][2])
    return body


def test_every_word_becomes_an_argument_of_the_job(asked: Llmgw, server: Server) -> None:
    done = asked(
        "model", "serve", "org/tiny-GGUF@main", "--quant", "Q4_K_M", "--file", "f.gguf", "--format", "gguf", "--way", "2 x NVIDIA L4",
        "--gpu-class", "NVIDIA L4", "--tp", "2", "--name", "tiny", "--on-demand", "--fallbacks", "--context", "2048", "--slots", "3",
        "--projector", "none", "--replicas", "2", "--description", "d", "--detach",
    )  # fmt: skip
    assert (done.code, done.out, done.err) == (0, "job_1\n", "")
    assert sent(server) == {
        "kind": "serve",
        "args": {
            "source": ["org/tiny-GGUF@main"], "quantization": "Q4_K_M", "file": "f.gguf", "file_format": "gguf", "way": "2 x NVIDIA L4",
            "gpu_class": "NVIDIA L4", "tp": 2, "name": "tiny", "on_demand": True, "fallbacks": True, "context": 2048, "slots": 3,
            "projector": "none", "replicas": 2, "description": "d",
        },
    }  # fmt: skip


def test_addresses_go_with_their_checksums(asked: Llmgw, server: Server) -> None:
    asked("model", "serve", "https://h/a.gguf", "--sha256", "a" * 64, "--detach")
    assert sent(server)["args"] == {"source": ["https://h/a.gguf"], "checksums": ["a" * 64]}


def test_a_file_of_this_machine_is_a_path(
    asked: Llmgw, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/tiny.gguf").write_bytes(b"GGUF")
    monkeypatch.chdir(tmp_path)
    asked("model", "serve", "own/tiny.gguf", "--context", "512", "--detach")
    assert sent(server)["args"] == {
        "name": "tiny", "path": str(tmp_path / "own/tiny.gguf"), "profile": {"context": 512},
    }  # fmt: skip
    wrong = asked("model", "serve", "own/tiny.gguf", "--quant", "Q4_0")
    assert wrong.code == 2
    assert "--quant is for weights that are fetched" in wrong.err


def test_it_stays_until_the_model_has_answered(asked: Llmgw, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.answers["GET /api/v1/jobs/job_1"] = (
        200,
        a_job(
            "done", ("Fetch the weights", "done", 1.0, "145 MiB"), ("Ask it something", "done", 1.0, "12 tokens/s"),
            result={"model": "m", "model_id": "mod_1", "answer": "5", "tokens_per_second": 36.47405938984375},
        ),
    )  # fmt: skip
    done = asked("model", "serve", "org/tiny-GGUF")
    assert done.code == 0
    assert "Job job_1: serve m" in done.out
    assert " + Fetch the weights: 145 MiB" in done.out
    assert "tokens per second  36.474" in done.out
    assert "mod_1" not in done.out
    assert asked("model", "serve", "org/tiny-GGUF", "--json").json["result"]["answer"] == "5"


def test_a_job_that_fails_ends_with_its_reason_and_one_that_waits_well(asked: Llmgw, server: Server) -> None:
    server.answers["GET /api/v1/jobs/job_1"] = (200, a_job("failed", message="it is gated"))
    failed = asked("model", "serve", "org/gated")
    assert (failed.code, "the job has failed: it is gated" in failed.err) == (1, True)
    server.answers["GET /api/v1/jobs/job_1"] = (200, a_job("waiting", message="m starts by itself"))
    waits = asked("model", "serve", "org/tiny")
    assert (waits.code, "It waits: m starts by itself." in waits.out) == (0, True)


def test_ctrl_c_ends_the_watching_and_says_how_to_come_back(
    asked: Llmgw, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.answers["GET /api/v1/jobs/job_1"] = (200, a_job("running"))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmgw_site.cli.following.time.sleep", interrupt)
    done = asked("model", "serve", "org/tiny")
    assert done.code == following.INTERRUPTED
    assert "llmgw jobs job_1 --follow" in done.out


def test_on_a_terminal_running_steps_have_a_bar() -> None:
    job = a_job(
        "running", ("Look at the source", "done", 1.0, "org/m"), ("Fetch the weights", "running", 0.25, "1 MiB of 4 MiB, 1 MiB/s"),
        ("Ask it something", "waiting", 0.0, ""),
    )  # fmt: skip
    text = io.StringIO()
    Console(file=text, width=120, force_terminal=True, color_system=None).print(following.bars(job))
    lines = text.getvalue().splitlines()
    assert "━" in lines[1]
    assert "25% 1 MiB of 4 MiB, 1 MiB/s" in lines[1]
    assert "━" not in lines[0] + lines[2]


@pytest.mark.django_db(transaction=True)
def test_a_real_server_opens_the_job(llmgw: Llmgw) -> None:
    done = llmgw("model", "serve", "org/tiny-GGUF", "--quant", "F16", "--detach")
    assert done.code == 0, done.err
    assert Job.objects.get().pk == done.out.strip()
    page = llmgw("model", "serve", "https://huggingface.co/org/m/blob/main/m-Q8_0.gguf", "--detach")
    assert page.code == 1
    assert "write org/m and --file m-Q8_0.gguf" in page.err


def test_a_result_is_shown_as_people_read_it() -> None:
    assert following._short(36.47405938984375) == 36.474
    assert following._short({"text": "5", "tokens_per_second": 170.537}) == ["'5' (171 tokens/s)"]
    assert following._short([{"node": "vm", "at_once": 4, "tps": 165.17}]) == ["node vm, at once 4, tps 165.17"]
    assert following._short(["m.gguf"]) == ["m.gguf"]
    assert following._short("") == ""
