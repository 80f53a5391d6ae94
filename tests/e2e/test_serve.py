"""From a repository to an answer, by the whole of llmgw: the real agent fetches from the small hub, the real engine answers.

vLLM itself is not here: in its place stands a program that checks what it is given and speaks vLLM's API, and the card that it
would need is described by a test's own NVML (tests/e2e/cards).
"""

from __future__ import annotations

import base64
import hashlib
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests import tiny
from tests.e2e.fetch_kills import Blows, served_under
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import SERVICES, Stack
from tests.tiny_vision import TINY, make_projector, png

pytestmark = [pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(300)]
CONFIG = b'{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64}'
HERE = Path(__file__).parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]


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
def up(hub: Hub, postgres_url: str) -> Iterator[Stack]:
    """On PostgreSQL, as the stack that other tests share is on SQLite."""
    folder = Path(tempfile.mkdtemp(prefix="llmgw-up-"))
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "vllm"
    program.write_text(
        f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(HERE / 'vllm_stub.py')!r}, run_name='__main__')\n"
    )
    program.chmod(0o755)
    stack = Stack(
        folder / "d", HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1", LLMGW_HEARTBEAT="1", LLMGW_RECONCILE="1",
        DATABASE_URL=postgres_url,
    )  # fmt: skip
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


def test_it_runs_on_postgresql(up: Stack) -> None:
    assert up.answers()
    assert up.services() == set(SERVICES)
    assert not list(up.data.glob("*.sqlite3"))


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


def test_kills_in_a_fetch_cost_the_segments_that_were_on_their_way(up: Stack, hub: Hub, tmp_path: Path) -> None:
    """The short form of test_kills_in_a_fetch.py: of worker and mirror; tests/workers/agent/test_fetch_kills.py kills agents."""
    blows = Blows(size=50 * 10**6, kills=2, services=("worker", "gateway"), latest=0.6)
    job = served_under(blows, up, hub, tmp_path, name="large", seed=random.randrange(1 << 30))
    assert job["result"]["answer"].strip() == tiny.TEXT
    up.remove_model("large")


def test_the_command_follows_the_job_to_the_answer(up: Stack) -> None:
    start = "from llmgw_site.cli.main import main; main()"
    words = ("model", "serve", "org/big-GGUF", "--way", "processor", "--name", "typed")
    done = subprocess.run(
        [sys.executable, "-c", start, *words],
        env=up.environ,
        capture_output=True,
        text=True,
        timeout=fair(120),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for said in (" + Look at the source: org/big-GGUF at ", " + Fetch the weights: ", tiny.TEXT, "tokens per second"):
        assert said in done.stdout
    up.remove_model("typed")


@pytest.fixture
def slow(hub: Hub) -> Iterator[str]:
    """A repository whose file takes some ten seconds."""
    repo = hub.add(Repo("org/slow-GGUF"))
    repo.commit({"slow-F16.gguf": tiny.tiny_gguf().read_bytes() + bytes(1 << 20)})
    hub.faults.chunk_pause = 1.0
    yield repo.id
    hub.faults.reset()


def fetching(up: Stack, job_id: str) -> dict[str, Any]:
    """Once some of the weights are there."""

    def found() -> Any:
        job = up.api().get(f"jobs/{job_id}")
        assert job["state"] in ("queued", "running"), told(job)
        step = job["steps"][2]
        return step["state"] == "running" and step["progress"] > 0 and job

    return dict(wait_for(found, seconds=fair(60), what=f"bytes: {up.tail()}", every=0.1) or {})


@pytest.mark.prove
def test_a_worker_that_is_killed_while_weights_are_fetched_costs_nothing(up: Stack, slow: str, hub: Hub) -> None:
    hub.seen.clear()
    args = {"source": [slow], "name": "slow", "way": "processor"}
    job = up.api().post("jobs", {"kind": "serve", "args": args})
    fetching(up, job["id"])
    up.kill("worker")

    def ended() -> Any:
        now = up.api().get(f"jobs/{job['id']}")
        return now["state"] not in ("queued", "running") and now

    done = dict(wait_for(ended, seconds=fair(120), what=f"the job to end: {up.tail()}", every=0.2) or {})
    assert done["state"] == "done", told(done)
    size = tiny.tiny_gguf().stat().st_size + (1 << 20)
    assert hub.sent() < 3 * size, "the header twice and the file once: a second time it would be more"
    up.remove_model("slow")


@pytest.mark.prove
def test_a_cancelled_fetch_leaves_no_version_and_no_file(up: Stack, hub: Hub) -> None:
    repo = hub.add(Repo("org/other-GGUF"))
    repo.commit({"other-F16.gguf": tiny.tiny_gguf().read_bytes() + bytes(2 << 20)})
    hub.faults.chunk_pause = 1.0
    try:
        job = up.api().post("jobs", {"kind": "serve", "args": {"source": [repo.id], "way": "processor"}})
        version = fetching(up, job["id"])["steps"][2]["data"]["version_id"]
        assert any(version in str(path) for path in (up.data / "weights").rglob("*"))
        up.api().post(f"jobs/{job['id']}/cancel")
        wait_for(
            lambda: up.api().get(f"jobs/{job['id']}")["state"] == "cancelled",
            seconds=fair(30),
            what="the job to be cancelled",
        )
        assert version not in [row["id"] for row in up.api().get("mirror")]
        gone = lambda: not any(version in str(path) for path in (up.data / "weights").rglob("*"))  # noqa: E731
        wait_for(gone, seconds=fair(60), what="its files to go", every=0.2)
        assert "other" not in [row["name"] for row in up.api().all("models")]
    finally:
        hub.faults.reset()


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


def says(up: Stack, name: str) -> str:
    """What is answered under this name; empty: nothing yet."""
    answer = up.chat(model=name, max_tokens=40)
    return str(answer.json()["choices"][0]["message"]["content"]).strip() if answer.status_code == 200 else ""


def test_an_adapter_is_fetched_with_its_model_and_answers_by_its_own_name(up: Stack, hub: Hub, tmp_path: Path) -> None:
    plain, loud = "What the model says.", "What its adapter shouts."
    base = tiny.make_tiny_gguf(tmp_path / "base.gguf", text=plain, loras=[(tmp_path / "loud.gguf", loud)])
    hub.add(Repo("org/voice-GGUF")).commit({"voice-F16.gguf": base.read_bytes()})
    lora = hub.add(Repo("org/voice-LoRA", base_model="org/voice-GGUF", relation="adapter"))
    lora.commit({"loud.gguf": (tmp_path / "loud.gguf").read_bytes(), "README.md": b"#"})
    job = served(up, source=["org/voice-GGUF"], name="voice", way="processor")
    assert job["state"] == "done", told(job)
    model = up.api().find("models", "voice", noun="model")
    made = up.api().post(f"models/{model['id']}/adapters", {"name": "org/loud", "repository": "org/voice-LoRA"})
    assert made["version"]
    wait_for(lambda: says(up, "org/loud") == loud, seconds=fair(60), what=f"the adapter: {up.tail()}", every=0.1)
    assert says(up, "voice") == plain
    up.api().delete(f"models/{model['id']}/adapters/{made['id']}")
    wait_for(lambda: up.chat(model="org/loud").status_code == 404, seconds=fair(30), what="it to be gone", every=0.1)
    assert says(up, "voice") == plain
    up.remove_model("voice")


def test_vllm_is_given_its_adapters_by_name(up: Stack, hub: Hub) -> None:
    hub.add(Repo("org/folder-LoRA", base_model="org/folder", relation="adapter")).commit(lora_folder(width=64, rank=24))
    job = served(up, source=["org/folder"], name="deep", context=1024)
    assert job["state"] == "done", told(job)
    model = up.api().find("models", "deep", noun="model")
    up.api().post(f"models/{model['id']}/adapters", {"name": "deep-loud", "repository": "org/folder-LoRA"})
    wanted = "Hello from deep-loud"
    wait_for(lambda: says(up, "deep-loud") == wanted, seconds=fair(60), what=f"the adapter: {up.tail()}", every=0.1)
    assert says(up, "deep").startswith("Hello")
    assert says(up, "deep") != wanted
    up.remove_model("deep")


def test_a_model_with_a_projector_sees_what_a_request_brings_and_fetches_nothing(
    up: Stack, hub: Hub, tmp_path: Path
) -> None:
    model, eyes = tiny.tiny_gguf(), make_projector(tmp_path / "mmproj-eyes-F16.gguf", tiny.tiny_gguf())
    hub.add(Repo("org/eyes-GGUF")).commit({"eyes-F16.gguf": model.read_bytes(), eyes.name: eyes.read_bytes()})
    job = served(up, source=["org/eyes-GGUF"], name="eyes", way="processor")
    assert job["state"] == "done", told(job)
    assert f"with {eyes.name}" in job["steps"][1]["detail"]
    (pid,) = up.engines("eyes")
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    assert words[words.index(b"--mmproj") + 1].endswith(eyes.name.encode())

    plain = up.chat("Hi.", model="eyes").json()["usage"]["prompt_tokens"]
    seen = look(up, "eyes", "data:image/png;base64," + base64.b64encode(png()).decode())
    assert seen.status_code == 200, seen.text
    assert seen.json()["choices"][0]["message"]["content"].strip() == tiny.TEXT
    assert seen.json()["usage"]["prompt_tokens"] == plain + TINY.tokens
    hub.seen.clear()
    for address, code in (
        (f"{hub.base}/x.png", "media_address_refused"),
        ("data:image/png;base64,aGk=", "media_unreadable"),
    ):
        refused = look(up, "eyes", address)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, code), refused.text
    assert not hub.seen
    up.remove_model("eyes")

    job = served(up, source=["org/eyes-GGUF"], name="blind", way="processor", projector="none")
    assert job["state"] == "done", told(job)
    refused = look(up, "blind", "data:image/png;base64," + base64.b64encode(png()).decode())
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "media_not_supported"), refused.text
    up.remove_model("blind")


def look(up: Stack, model: str, address: str) -> httpx.Response:
    """One chat about a picture."""
    parts = [{"type": "text", "text": "Hi."}, {"type": "image_url", "image_url": {"url": address}}]
    return up.chat(model=model, messages=[{"role": "user", "content": parts}])


def lora_folder(*, width: int, rank: int) -> dict[str, bytes]:
    """An adapter of PEFT for the first layer's queries; zeros."""
    head, at = {}, 0
    for half, shape in (("A", [rank, width]), ("B", [width, rank])):
        size = 2 * rank * width
        name = f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight"
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    config = json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": rank}).encode()
    weights = struct.pack("<Q", len(text)) + text + bytes(at)
    return {"adapter_config.json": config, "adapter_model.safetensors": weights, "README.md": b"#"}


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="LEFT OUT: no chromium on PATH, so no page was opened")
def test_a_file_is_served_from_its_repository_s_page(up: Stack, hub: Hub) -> None:
    expect.set_options(timeout=60_000)  # beside other tests a page takes its time
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_context(base_url=up.url).new_page()
        page.goto("/admin/registry/org/small-GGUF")
        page.get_by_label("Username").fill(up.quickstart["LLMGW_ADMIN_USER"])
        page.get_by_label("Password").fill(up.quickstart["LLMGW_ADMIN_PASSWORD"])
        page.get_by_role("button", name="Log in").click()
        page.get_by_text("Serve F16…").click()
        page.get_by_label("Name, as clients ask for it").fill("two words")
        page.get_by_role("combobox", name="Way").select_option("processor")
        page.get_by_role("button", name="Fetch and serve").click()
        expect(page.get_by_role("alert")).to_contain_text("It begins with a letter or digit")
        page.get_by_label("Name, as clients ask for it").fill("by-hand")
        hub.faults.hold_from = 0  # so long the job cannot end
        page.get_by_role("button", name="Fetch and serve").click()
        expect(page.get_by_role("heading", name="Serve by-hand").first).to_be_visible()
        expect(page.locator(".lg-badge")).to_have_text("1")
        hub.faults.hold_from = None
        expect(page.locator(".lg-step.done")).to_have_count(7)  # the page looks by itself
        expect(page.get_by_text(tiny.TEXT).first).to_be_visible()
        expect(page.locator(".lg-badge")).to_be_hidden()
        browser.close()
    up.remove_model("by-hand")
