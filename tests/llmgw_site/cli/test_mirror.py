"""`llmgw mirror`, `llmgw model updates|update|rollback|origin` and `llmgw bench` against a real server and a small hub."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.domain.manifests import ManifestFile
from catalog.models import Model, Origin, Version
from catalog.services import adapters, tracing
from cluster.domain.fetching import FetchReport
from cluster.models import Job
from cluster.selectors import database_now
from cluster.wire import WeightsReport
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model, a_version
from tests.tiny import make_tiny_gguf, tiny_gguf

pytestmark = pytest.mark.django_db(transaction=True)


def test_versions_are_added_listed_and_removed(llmgw: Llmgw, stocked_hub: Hub) -> None:
    assert "llmgw mirror add OWNER/REPOSITORY" in llmgw("mirror", "list").out
    added = llmgw("mirror", "add", "org/tiny-GGUF", "--quant", "q8_0", "--projector", "none")
    assert (added.code, added.err) == (0, "")
    assert "Q8_0" in added.out
    assert "in 1 file: not begun" in added.out
    version = Version.objects.get()
    Machine("one").heartbeat(fetches=(FetchReport(version=version.pk, size=1000, there=250, rate=2048.0, shared=100),))
    listed = llmgw("mirror", "list", "--files")
    assert "25% on one (100 B of 1000 B were here already), 2.0 KiB/s" in listed.out
    assert "tiny-Q8_0.gguf" in listed.out
    assert llmgw("mirror", "list", "--json").json[0]["id"] == version.pk
    removed = llmgw("mirror", "remove", version.name)
    assert (removed.code, removed.err) == (0, "")
    assert "kept no longer" in removed.out
    assert llmgw("mirror", "remove", version.pk).code == 4


def test_what_a_model_needs_and_what_is_several_models_is_refused(llmgw: Llmgw, stocked_hub: Hub) -> None:
    version = a_version()
    a_model("m", version=version)
    Machine("one").heartbeat(weights_mark="x", weights=(WeightsReport(path=version.pk, size=version.size),), fetches=())
    assert "model m" in llmgw("mirror", "list").out
    assert "needed by m" in llmgw("mirror", "remove", version.pk).err
    assert "name one by its quantization" in llmgw("mirror", "add", "org/tiny-GGUF").err
    assert "write org/tiny" in llmgw("mirror", "add", "https://huggingface.co/org/tiny").err


def test_updates_are_listed_asked_for_and_opened(llmgw: Llmgw, stocked_hub: Hub) -> None:
    small = tiny_gguf().read_bytes()
    repo = stocked_hub.add(Repo("org/moving"))
    repo.commit({"m-Q8_0.gguf": small})
    llmgw("mirror", "add", "org/moving")
    a_model("m", version=Version.objects.get(), profile={"memory": 1 << 28})
    assert "not asked yet" in llmgw("model", "updates").out
    assert "up to date" in llmgw("model", "updates", "--check").out
    newest = repo.commit({"m-Q8_0.gguf": small + b"x"})
    assert f"1 file changed, at {newest[:8]}" in llmgw("model", "updates", "--check").out
    stocked_hub.faults.rate_limits = 1
    limited = llmgw("model", "updates", "--check")
    assert (limited.code, "registry_limited" in limited.out) == (0, True)
    opened = llmgw("model", "update", "m", "--detach")
    assert (opened.code, opened.out.strip()) == (0, Job.objects.get().id)
    assert "no earlier version" in llmgw("model", "rollback", "m").err


def test_an_origin_is_traced_or_given(llmgw: Llmgw, stocked_hub: Hub, tmp_path: Any) -> None:
    small = tiny_gguf().read_bytes()
    (tmp_path / "tiny-F16.gguf").write_bytes(small)
    a_model("lies", weights_path=str(tmp_path / "tiny-F16.gguf"))
    assert "origin unknown" in llmgw("model", "updates").out
    wrong = llmgw("model", "origin", "lies", "--repository", "org/broken")
    assert (wrong.code, "has no file tiny-F16.gguf" in wrong.err) == (1, True)
    traced = llmgw("model", "origin", "lies")
    assert (traced.code, traced.err) == (0, "")
    assert "comes from org/tiny-GGUF at" in traced.out
    assert "as was traced" in traced.out


def test_the_origin_of_a_version_and_of_an_adapter_is_traced_or_given(
    llmgw: Llmgw, stocked_hub: Hub, tmp_path: Path
) -> None:
    small, base, lora = tiny_gguf().read_bytes(), tmp_path / "base.gguf", tmp_path / "calmly.gguf"
    make_tiny_gguf(base, loras=[(lora, "Something calm.")])
    stocked_hub.add(Repo("org/wonder")).commit({"wonder-Q8_0.gguf": small})
    stocked_hub.add(Repo("org/calmly-LoRA")).commit({"calmly.gguf": lora.read_bytes()})
    sha256 = hashlib.sha256(small).hexdigest()
    files = [
        ManifestFile(path="wonder-Q8_0.gguf", size=len(small), sha256=sha256, url="https://x.test/wonder-Q8_0.gguf")
    ]
    version = a_version("", registry="", commit="", files=files, first="wonder-Q8_0.gguf")
    adapters.add(actor="t", model=a_model("base", weights_path=str(base)), name="calm", path=str(lora))
    wrong = llmgw("model", "origin", version.pk, "--repository", "org/calmly-LoRA")
    assert (wrong.code, "has no file wonder-Q8_0.gguf" in wrong.err) == (1, True)
    assert "comes from org/wonder, as was traced" in llmgw("model", "origin", version.name).out
    assert "(from org/wonder, traced)" in llmgw("mirror", "list").out
    assert "llmgw model origin calm" in llmgw("model", "update", "calm").err
    given = llmgw("model", "origin", "calm", "--repository", "org/calmly-LoRA")
    assert "calm comes from org/calmly-LoRA at" in given.out
    assert "calm (adapter of base)" in llmgw("model", "updates").out
    assert llmgw("model", "update", "calm", "--detach").code == 0
    assert llmgw("model", "origin", "none").code == 4


def test_the_origin_of_a_version_is_told_though_its_model_was_looked_for_in_vain(
    llmgw: Llmgw, stocked_hub: Hub
) -> None:
    small = tiny_gguf().read_bytes()
    stocked_hub.add(Repo("org/named")).commit({"own-Q8_0.gguf": small})
    sha256 = hashlib.sha256(small).hexdigest()
    files = [ManifestFile(path="own-Q8_0.gguf", size=len(small), sha256=sha256, url="https://x.test/own-Q8_0.gguf")]
    version = a_version("", registry="", commit="", files=files, first="own-Q8_0.gguf")
    model = a_model("m", version=version)
    Origin.objects.create(
        model=model, traced_at=timezone.now(), trace_code="origin_not_found", trace_message="none has it"
    )
    given = llmgw("model", "origin", version.pk, "--repository", "org/named")
    assert "comes from org/named, as you say" in given.out
    assert "(from org/named" in llmgw("mirror", "list").out


def test_bench_opens_a_job_and_refuses_times_that_are_none(llmgw: Llmgw) -> None:
    Model.objects.create(name="m", weights_path="/x.gguf")
    assert "write one like 2s or 500ms" in llmgw("bench", "m", "--ttft", "soon").err
    assert llmgw("bench", "m", "--ttft", "500ms", "--most", "4", "--detach").code == 0
    assert Job.objects.get().args == {"name": "m", "ttft": 0.5, "most": 4}


def test_what_came_of_looking_for_an_origin_is_listed(llmgw: Llmgw, stocked_hub: Hub, tmp_path: Path) -> None:
    small = tiny_gguf().read_bytes()
    stocked_hub.add(Repo("org/wonder")).commit({"wonder-Q8_0.gguf": small})
    files = {
        name: [ManifestFile(path=name, size=len(small), sha256=sha256, url=f"https://x.test/{name}")]
        for name, sha256 in (("wonder-Q8_0.gguf", hashlib.sha256(small).hexdigest()), ("lost-Q8_0.gguf", "2" * 64))
    }
    for name, found in files.items():
        a_model(name[:4], version=a_version("", registry="", commit="", files=found, first=name))
    for after in (0.0, 100.0):
        tracing.trace_next(lambda model: None, now=database_now() + after)
    listed = llmgw("mirror", "list").out
    assert "(from org/wonder, traced)" in listed
    assert "(origin not found)" in listed
    rows = {row["users"][0]: row for row in llmgw("mirror", "list", "--json").json}
    assert (rows["model wond"]["origin"], rows["model wond"]["trace"]) == ("org/wonder", "traced")
    told = llmgw("model", "updates").out
    assert "org/wonder (traced)" in told
    assert "origin not found" in told
    assert "lost: no repository has lost-Q8_0.gguf at that size" in told
