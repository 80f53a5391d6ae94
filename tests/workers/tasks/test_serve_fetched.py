"""workers.tasks.serve_fetched: a serve job from a registry, against the small hub; nodes are told what a real one would say.

The fetching itself is the nodes' (tests/workers/agent); here a node says that it has the whole version.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from catalog.models import Model, Version
from catalog.services import origins, served
from cluster.domain.fetching import FetchReport
from cluster.models import Job, JobStep, Replica
from cluster.wire import CardReport, EngineBuild, WeightsReport
from llmgw_site.lib.units import GIB
from tests.cluster.rows import HARDWARE, Machine, report, tick
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.tiny import tiny_gguf
from tests.tiny_vision import projector_bytes
from tests.workers.tasks.fetched import Keeper, opened, whole
from tests.workers.tasks.site import run, step
from workers import jobs
from workers.tasks import serve, serve_fetched
from workers.tasks.advance import KINDS

pytestmark = pytest.mark.django_db
WITH_CARDS = replace(
    HARDWARE,
    cards=tuple(CardReport(uuid=f"GPU-{n}", name="L4", memory_total=24 * GIB, memory_foreign=0) for n in range(2)),
)


def test_a_repository_becomes_a_model_that_is_fetched_and_placed(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    assert (job.state, step(job, "mirror").state) == ("running", "running")
    assert (version.repository, version.commit) == ("org/tiny-GGUF", stocked_hub.repos["org/tiny-GGUF"].head)
    assert (version.registry, version.quantization, version.first) == (stocked_hub.base, "F16", "tiny-F16.gguf")
    assert version.projector == "mmproj-F16.gguf"
    assert [item["path"] for item in version.manifest["files"]] == ["tiny-F16.gguf", "mmproj-F16.gguf"]
    assert not Model.objects.exists()
    whole(machine, version)
    run(job)
    model = Model.objects.get()
    assert (model.name, model.version_id, model.weights_path, model.replicas) == ("m", version.pk, "", 1)
    profile = model.profiles.get()
    assert (profile.engine, profile.context, profile.slots, profile.gpus_per_node) == ("llama.cpp", 4096, 2, 0)
    assert step(job, "wait").state == "running"
    assert "on processor (llama.cpp)" in step(job, "plan").detail
    tick()
    assert Replica.objects.filter(model=model).count() == 1


@pytest.mark.parametrize("at", ["", "@main", "@head"])
def test_what_the_origin_said_of_the_newest_files_is_known_of_the_new_model(
    stocked_hub: Hub, machine: Machine, at: str
) -> None:
    """Of a commit that somebody names nobody knows whether it is the newest."""
    head = stocked_hub.repos["org/tiny-GGUF"].head
    job = run(opened(f"org/tiny-GGUF{at.replace('head', head)}", quantization="F16"))
    whole(machine, Version.objects.get())
    run(job)
    (told,) = origins.standings()
    known = at != "@head"
    assert (told["checked_at"] is not None, told["newest"], told["changed"]) == (known, head if known else "", [])


def test_the_repository_is_asked_no_more_once_the_weights_are_wanted(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    asked = len(stocked_hub.seen)
    run(job)
    run(job)
    assert len(stocked_hub.seen) == asked
    assert stocked_hub.sent() < 3 * tiny_gguf().stat().st_size  # headers are read, models are not fetched


def test_without_words_the_usual_quantisation_is_taken(stocked_hub: Hub, machine: Machine) -> None:
    run(opened(projector="none"))
    assert (Version.objects.get().quantization, Version.objects.get().projector) == ("Q8_0", "")


def test_a_sharded_file_is_one_version_with_all_its_parts(stocked_hub: Hub, machine: Machine) -> None:
    small = tiny_gguf().read_bytes()
    repo = stocked_hub.add(Repo("org/parts"))
    repo.commit({f"m-Q8_0-{n:05d}-of-00002.gguf": small + bytes(n) for n in (1, 2)})
    run(opened("org/parts"))
    version = Version.objects.get()
    assert version.first == "m-Q8_0-00001-of-00002.gguf"
    assert len(version.manifest["files"]) == 2
    assert version.size == 2 * len(small) + 3


def test_safetensors_become_a_profile_of_vllm_on_the_cards_that_hold_them(stocked_hub: Hub) -> None:
    machine = Keeper("one")
    engines = (EngineBuild(kind="vllm", version="vllm 1"),)
    machine.heartbeat(engines=engines, hardware=WITH_CARDS)
    job = run(opened("org/tiny"))
    version = Version.objects.get()
    assert (version.format, version.first) == ("safetensors", "")
    machine.heartbeat(
        engines=engines, hardware=WITH_CARDS, weights_mark="x",
        weights=(WeightsReport(path=version.pk, size=version.size),),
    )  # fmt: skip
    run(job)
    profile = Model.objects.get().profiles.get()
    assert (profile.engine, profile.tp, len(profile.card_classes)) == ("vllm", 1, 1)


@pytest.mark.parametrize(
    ("args", "name", "code", "words"),
    [
        ({"source": "org/gated"}, "registry", "repository_gated", "ask for access at"),
        ({"source": "org/nothing"}, "registry", "repository_unknown", "There is no repository org/nothing"),
        ({"source": "org/words"}, "registry", "repository_has_no_model", "there is no .gguf model"),
        ({"quantization": "Q2_K"}, "registry", "quantization_not_in_repository", "it has F16, Q8_0"),
        ({"file": "mmproj-F16.gguf"}, "registry", "file_not_in_repository", "tiny-F16.gguf"),
        ({"projector": "other.gguf"}, "registry", "projector_not_in_repository", "there are mmproj-F16.gguf"),
        ({"source": "org/broken"}, "plan", "gguf_not_gguf", "m-Q8_0.gguf"),
        ({"way": "8 x NVIDIA L4"}, "plan", "way_unknown", "processor"),
    ],
)
def test_what_cannot_be_served_is_refused_at_its_step_with_what_there_is(
    stocked_hub: Hub, machine: Machine, args: dict[str, Any], name: str, code: str, words: str
) -> None:
    job = run(opened(**args))
    assert (job.state, job.code, step(job, name).state) == ("failed", code, "failed")
    assert words.casefold() in job.message.casefold()
    assert not Version.objects.exists()


def test_what_fits_nowhere_is_refused_before_anything_is_fetched(stocked_hub: Hub) -> None:
    job = run(opened())
    assert (job.state, step(job, "plan").state) == ("failed", "failed")
    assert "fits nowhere" in job.message
    assert not Version.objects.exists()


def test_a_name_that_stands_for_other_weights_is_refused_before_anything_is_fetched(
    stocked_hub: Hub, machine: Machine
) -> None:
    served.add_model(actor="t", name="m", weights_path="/elsewhere/m.gguf", weights_size=64)
    job = run(opened())
    assert (job.state, job.code, step(job, "registry").state) == ("failed", "model_exists", "failed")


def test_the_same_model_again_is_taken_as_it_is(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    whole(machine, Version.objects.get())
    run(job)
    Job.objects.all().delete()
    served.disable(actor="t", model=Model.objects.get())
    again = run(opened(quantization="F16"))
    assert step(again, "catalogue").detail == "m is in the catalogue"
    assert Model.objects.get().enabled
    assert (Model.objects.count(), Version.objects.count()) == (1, 1)
    Job.objects.all().delete()
    differs = run(opened(quantization="F16", slots=7, replicas=1))
    assert (differs.state, differs.code, step(differs, "registry").state) == ("failed", "model_differs", "failed")
    Job.objects.all().delete()
    other = run(opened(quantization="Q8_0"))
    assert (other.state, other.code, step(other, "plan").state) == ("failed", "model_exists", "failed")
    assert Version.objects.count() == 1  # nothing is fetched for nothing


def test_other_addresses_than_those_of_the_model_are_refused_before_anything_is_fetched(
    stocked_hub: Hub, machine: Machine
) -> None:
    where = f"{stocked_hub.base}/org/tiny-GGUF/resolve/main"
    digests = [hashlib.sha256(data).hexdigest() for data in (tiny_gguf().read_bytes(), b"other")]
    run(opened(f"{where}/tiny-F16.gguf", checksums=digests[:1]))
    whole(machine, Version.objects.get())
    run(Job.objects.get())
    assert Model.objects.exists()
    Job.objects.all().delete()
    other = run(opened(f"{where}/tiny-F16.gguf", checksums=digests[1:]))
    assert (other.state, other.code) == ("failed", "model_exists")
    assert Version.objects.count() == 1


def test_a_registry_that_asks_to_wait_is_waited_for(stocked_hub: Hub, machine: Machine) -> None:
    stocked_hub.faults.rate_limits = 1
    stocked_hub.faults.rate_wait = 55
    job = opened()
    assert jobs.run(job.id, KINDS) == 56.0
    assert "no more requests for 56 s" in step(job, "registry").detail
    assert jobs.run(job.id, KINDS) == serve_fetched.NEXT_LOOK
    assert step(job, "mirror").state == "running"


def test_a_registry_that_stays_away_ends_the_job_after_a_while(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stocked_hub.faults.server_errors = 2
    job = run(opened())
    assert job.state == "running"
    monkeypatch.setattr(serve_fetched, "PATIENCE", -1.0)
    job = run(job)
    assert (job.state, job.code) == ("failed", "registry_failed")


def test_an_architecture_that_no_build_knows_is_refused_before_anything_is_fetched(stocked_hub: Hub) -> None:
    machine = Keeper("one")
    machine.heartbeat(engines=(EngineBuild(kind="llama.cpp", version="xllamacpp 0.1", architectures=("mamba",)),))
    job = run(opened())
    assert (job.state, job.code) == ("failed", "architecture_unknown")
    assert "llama: xllamacpp 0.1 on 1 node" in job.message


def test_plain_addresses_are_served_like_a_repository(stocked_hub: Hub, machine: Machine) -> None:
    content = tiny_gguf().read_bytes()
    url = f"{stocked_hub.base}/org/tiny-GGUF/resolve/main/tiny-F16.gguf"
    job = run(opened(url, checksums=[hashlib.sha256(content).hexdigest()]))
    assert step(job, "registry").detail == "1 file: F16"
    version = Version.objects.get()
    assert (version.registry, version.repository, version.commit) == ("", "", "")
    assert version.manifest["files"][0]["url"] == url
    whole(machine, version)
    run(job)
    assert Model.objects.get().version_id == version.pk


def test_fallbacks_are_profiles_of_lower_priority(stocked_hub: Hub) -> None:
    machine = Keeper("one")
    machine.heartbeat(hardware=WITH_CARDS)
    job = run(opened(quantization="F16", fallbacks=True))
    version = Version.objects.get()
    machine.heartbeat(
        hardware=WITH_CARDS, weights_mark="x", weights=(WeightsReport(path=version.pk, size=version.size),)
    )
    run(job)
    found = {item.name: (item.priority, item.gpus_per_node) for item in Model.objects.get().profiles.all()}
    assert found == {"default": (10, 1), "processor": (0, 0)}


def test_a_model_on_demand_is_asked_for_so_that_the_job_can_see_it_answer(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16", on_demand=True))
    whole(machine, Version.objects.get())
    run(job)
    model = Model.objects.get()
    assert (model.replicas, model.max_replicas) == (0, 1)
    tick()
    assert Replica.objects.filter(model=model).count() == 1


def test_a_refusal_of_the_node_ends_the_job_with_its_code(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    told = FetchReport(
        version=version.pk, size=version.size, there=1000, rate=None, code="disk_full", message="no room for 600 KiB"
    )
    machine.heartbeat(fetches=(told,))
    assert run(job).state == "running"
    assert "no room for 600 KiB" in step(job, "mirror").detail
    monkeypatch.setattr(serve_fetched, "NO_MIRROR", -1.0)
    job = run(job)
    assert (job.state, job.code) == ("failed", "disk_full")
    assert Version.objects.exists()  # tried again, it goes on from there


@pytest.mark.parametrize(
    ("code", "after", "state"),
    [
        ("registry_limited", 7200.0, "running"),  # a registry may ask to wait an hour
        ("registry_unreachable", 120.0, "running"),  # a network that is away for two minutes
        ("registry_unreachable", 400.0, "failed"),
        ("disk_full", 120.0, "failed"),
    ],
)
def test_what_time_cures_is_waited_for_while_a_node_fetches(
    stocked_hub: Hub, machine: Machine, code: str, after: float, state: str
) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    machine.heartbeat(fetches=(FetchReport(version=version.pk, size=version.size, code=code, message="why"),))
    assert run(job).state == "running"
    noted = step(job, "mirror").data
    since = {patience: at - after for patience, at in noted["refused_since"].items()}
    told = {**noted, "refused_since": since}
    JobStep.objects.filter(job=job, name="mirror").update(data=told)
    job = run(job)
    assert (job.state, job.code) == (state, code if state == "failed" else "")


def test_each_trouble_of_a_node_gets_its_own_time_and_two_in_turn_no_more(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()

    def told(code: str) -> Job:
        report = FetchReport(version=version.pk, size=version.size, code=code, message="why")
        machine.heartbeat(fetches=(report,))
        return run(job)

    def later(seconds: float) -> None:
        row = JobStep.objects.get(job=job, name="mirror")
        row.data["refused_since"] = {key: at - seconds for key, at in row.data["refused_since"].items()}
        row.save()

    assert told("fetch_broken").state == "running"
    later(100.0)
    assert told("file_wrong").state == "running"  # it came for the first time
    assert told("fetch_broken").state == "running"
    later(20.0)
    assert (told("file_wrong").state, Job.objects.get(id=job.pk).code) == ("failed", "file_wrong")


def test_progress_is_told_in_bytes_and_rate(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    half = version.size // 2
    told = FetchReport(version=version.pk, size=version.size, there=half, rate=half / 10, shared=1024)
    machine.heartbeat(fetches=(told,))
    run(job)
    found = step(job, "mirror")
    assert found.progress == pytest.approx(0.5, abs=0.01)
    assert "/s, 10 s left" in found.detail
    assert "(1.0 KiB were here already)" in found.detail
    whole(machine, version)
    run(job)
    assert step(job, "mirror").detail.endswith("whole and checked on one, 1.0 KiB of it were here already")


def test_a_job_whose_cards_others_use_ends_as_waiting(
    stocked_hub: Hub, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(opened(quantization="F16"))
    monkeypatch.setattr(serve, "ENOUGH", -1.0)
    machine.heartbeat(
        hardware=replace(HARDWARE, memory_available=GIB // 8),
        weights_mark="y",
        weights=(WeightsReport(path=Version.objects.get().pk, size=Version.objects.get().size),),
    )
    job = run(job)
    assert (job.state, job.code) == ("waiting", "no_memory_now")
    assert "starts by itself once there is room" in job.message
    assert job.result["model"] == "m"
    assert Model.objects.get().enabled


def test_how_far_its_node_is_with_fetching_moves_the_bar(stocked_hub: Hub, machine: Machine) -> None:
    job = run(opened(quantization="F16"))
    version = Version.objects.get()
    other = Keeper("two")  # a data node that keeps it
    other.heartbeat(
        weights_mark="x",
        weights=(WeightsReport(path=version.pk, size=version.size),),
        hardware=replace(HARDWARE, cores=1),
    )
    run(job)
    tick()
    row = Replica.objects.get()
    at = machine if row.node_id == machine.node.id else other
    told = FetchReport(version=version.pk, size=version.size, there=version.size // 2, rate=1e6)
    at.heartbeat(report(row, "fetching", message="half of it"), fetches=(told,))
    run(job)
    found = step(job, "wait")
    assert found.progress == pytest.approx(0.425, abs=0.01)
    assert "half of it" in found.detail


def test_in_a_repository_of_both_formats_a_named_projector_is_for_the_gguf(stocked_hub: Hub, machine: Machine) -> None:
    small = tiny_gguf().read_bytes()
    stocked_hub.add(Repo("org/both")).commit(
        {
            "m-F16.gguf": small,
            "mmproj-F16.gguf": projector_bytes(),
            "config.json": b'{"num_attention_heads": 4}',
            "model.safetensors": small,
        }
    )
    run(opened("org/both", projector="mmproj-F16.gguf"))
    assert (Version.objects.get().first, Version.objects.get().projector) == ("m-F16.gguf", "mmproj-F16.gguf")


def test_signed_addresses_are_fetched_from_and_not_shown(
    stocked_hub: Hub, machine: Machine, admin_client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    repo = stocked_hub.repos["org/tiny-GGUF"]
    file = repo.commits[repo.head]["tiny-F16.gguf"]
    url = f"{stocked_hub.base}/org/tiny-GGUF/resolve/{repo.head}/tiny-F16.gguf?X-Amz-Signature=topsecret"
    job = run(opened(url, checksums=[file.sha256]))
    version = Version.objects.get()
    assert version.manifest["files"][0]["url"] == url
    assert step(job, "mirror").state == "running", job.message
    pages = [
        f"/api/v1/jobs/{job.id}",
        "/api/v1/jobs",
        f"/api/v1/mirror/{version.pk}",
        f"/admin/jobs/{job.id}",
        "/admin/mirror",
    ]
    pages += [f"/admin/cluster/job/{job.id}/change/", f"/admin/catalog/version/{version.pk}/change/", "/api/v1/events"]
    for page in pages:
        answer = admin_client.get(page, follow=True)
        assert answer.status_code == 200, page
        assert "topsecret" not in answer.content.decode(), page
    assert "topsecret" not in caplog.text
    told = admin_client.get(f"/api/v1/jobs/{job.id}").json()
    assert told["args"]["source"] == [url.partition("?")[0]]
