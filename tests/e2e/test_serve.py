"""From a repository to an answer, by the whole of llmgw: the real agent fetches from the small hub, the real engine answers.

vLLM itself is not here: in its place stands a program that checks what it is given and speaks vLLM's API, and the card that it
would need is described by a test's own NVML (tests/e2e/cards).
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import Stack

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("up"), pytest.mark.timeout(300)]
CONFIG = b'{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64}'
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    """A GGUF, one in three parts, and a folder of safetensors whose weights nobody reads here."""
    folder = Path(tempfile.mkdtemp(prefix="llmgw-parts-"))
    try:
        tiny.make_tiny_gguf(folder / "big-F16.gguf", name="big", part=8)
        parts = {file.name: file.read_bytes() for file in sorted(folder.iterdir())}
        assert len(parts) == 3
        with running() as hub:
            hub.add(Repo("org/small-GGUF")).commit(
                {
                    "small-F16.gguf": tiny.tiny_gguf().read_bytes(),
                    "small.imatrix.gguf": b"x" * 20_000,
                    "README.md": b"#",
                }
            )
            hub.add(Repo("org/big-GGUF")).commit({**parts, "README.md": b"#"})
            hub.add(Repo("org/folder")).commit(
                {"config.json": CONFIG, "tokenizer.json": b"{}", "model.safetensors": b"s" * 100_000, "README.md": b"#"}
            )
            yield hub
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def up(hub: Hub) -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "vllm"
    program.write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(HERE / 'vllm_stub.py')!r}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    stack = Stack(
        folder / "d", HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1", LLMGW_HEARTBEAT="1", LLMGW_RECONCILE="1"
    )
    stack.environ["PATH"] = f"{programs}:{stack.environ['PATH']}"
    stack.environ["PYTHONPATH"] = f"{HERE / 'cards'}:{stack.environ.get('PYTHONPATH', '')}"
    try:
        stack.start()
        yield stack
        assert stack.stop() == 0, stack.tail()
    finally:
        stack.destroy()
        shutil.rmtree(folder, ignore_errors=True)


def served(up: Stack, **args: Any) -> dict[str, Any]:
    """The job, once it has ended."""
    job = up.api().post("jobs", {"kind": "serve", "args": args})

    def ended() -> Any:
        now = up.api().get(f"jobs/{job['id']}")
        return now["state"] not in ("queued", "running") and now

    return dict(wait_for(ended, seconds=fair(120), what=f"job {job['id']} to end: {up.tail()}", every=0.1) or {})


def told(job: dict[str, Any]) -> str:
    """How a job ended, for who reads that it should have ended otherwise."""
    steps = "\n".join(f"{step['name']}: {step['state']} {step['detail']}" for step in job["steps"])
    return f"{job['state']} {job['code']} {job['message']}\n{steps}"


def test_a_repository_becomes_an_answer(up: Stack, hub: Hub) -> None:
    hub.seen.clear()
    job = served(up, source=["org/small-GGUF"], name="small", way="processor")
    assert job["state"] == "done", told(job)
    assert [step["state"] for step in job["steps"]] == ["done"] * 7
    assert job["result"]["answer"].strip() == tiny.TEXT
    assert job["result"]["tokens_per_second"] > 0
    assert up.chat(model="small").json()["choices"][0]["message"]["content"].strip() == tiny.TEXT
    assert not any("imatrix" in item["path"] for item in hub.seen)
    again = served(up, source=["org/small-GGUF"], name="small", way="processor")
    assert again["state"] == "done", told(again)
    assert again["steps"][4]["detail"] == "small is in the catalogue"
    up.remove_model("small")


def test_a_model_in_parts_becomes_an_answer(up: Stack) -> None:
    job = served(up, source=["org/big-GGUF"], way="processor", on_demand=True)
    assert job["state"] == "done", told(job)
    assert job["result"]["answer"].strip() == tiny.TEXT
    assert up.chat(model="big").status_code == 200
    up.remove_model("big")


def test_plain_addresses_become_an_answer(up: Stack, hub: Hub) -> None:
    url = f"{hub.base}/org/small-GGUF/resolve/main/small-F16.gguf"
    digest = hashlib.sha256(tiny.tiny_gguf().read_bytes()).hexdigest()
    job = served(up, source=[url], checksums=[digest], name="plain", way="processor")
    assert job["state"] == "done", told(job)
    assert job["result"]["answer"].strip() == tiny.TEXT
    up.remove_model("plain")
    wrong = served(up, source=[url], checksums=["0" * 64], name="wrong", way="processor")
    assert (wrong["state"], wrong["code"]) == ("failed", "file_wrong"), told(wrong)


def test_safetensors_reach_a_vllm_that_is_started_as_it_should_be(up: Stack) -> None:
    job = served(up, source=["org/folder"], name="folder", context=1024)
    assert job["state"] == "done", told(job)
    assert job["result"]["answer"].startswith("Hello")
    assert "1 x NVIDIA L4 (vllm)" in job["steps"][1]["detail"]
    up.remove_model("folder")
