"""workers.tasks.update_adapter: an adapter's update and its way back, against the small hub; nodes are told what a real one would say."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from catalog.domain.adapters import CONFIG, WEIGHTS
from catalog.models import Adapter, Model, Version
from catalog.services import adapter_updates, adapters, origins
from catalog.services import versions as weights
from cluster.models import Job, JobStep, ModelStanding, Replica
from cluster.selectors import database_now
from cluster.services import jobs as rows
from cluster.services import updates
from cluster.wire import EngineBuild, WeightsReport
from llmgw_site.lib.errors import Kind, Refused
from routing.selectors import compile_snapshot
from tests.cluster.rows import ENGINES, tick
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import ACTOR, a_model, a_version
from tests.tiny import make_tiny_gguf
from tests.workers.tasks.site import OneNode, run
from workers import smoke
from workers.tasks import origins as asked

pytestmark = pytest.mark.django_db
REPO = "org/calm-LoRA"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, two adapters of it, and one of a wider model."""
    folder = tmp_path_factory.mktemp("loras")
    make_tiny_gguf(
        folder / "base.gguf", loras=[(folder / "one.gguf", "Something calm."), (folder / "two.gguf", "All calm now.")]
    )
    return folder


class Site(OneNode):
    """One node, a model with a fetched adapter, of which one replica is ready."""

    path: str
    engines, scale = ENGINES, 0.5

    def __init__(self, hub: Hub, files: Path) -> None:
        super().__init__()
        self.files = files
        self.repo = hub.add(Repo(REPO))
        self.put()
        self.adapter = adapters.add(actor=ACTOR, model=self.model, name="calm", repository=REPO, scale=self.scale)
        assert self.adapter.version is not None
        self.first: Version = self.adapter.version
        self.hold(self.first)
        tick()
        self.ready(Replica.objects.get())

    def put(self) -> None:
        """The model, and its file on the node."""
        self.model, self.fields = self.stock(), {"engines": self.engines}
        self.own = (WeightsReport(path=self.path, size=(self.files / "base.gguf").stat().st_size),)

    def stock(self) -> Model:
        self.repo.commit({"calm.gguf": (self.files / "one.gguf").read_bytes(), "README.md": b"#"})
        self.path = str(self.files / "base.gguf")
        return a_model("base", weights_path=self.path, profile={"memory": 1 << 28})

    def changes(self, name: str = "two.gguf") -> str:
        return self.repo.commit({"calm.gguf": (self.files / name).read_bytes(), "README.md": b"# new"})

    def running(self) -> dict[str, str]:
        """State of each replica that shall run, by the version of the adapter that it was told."""
        rows = Replica.objects.filter(run=True)
        return {row.serve["adapters"][0]["weights"]["version"]: row.state for row in rows}

    def now(self) -> Adapter:
        return Adapter.objects.select_related("version", "previous", "model").get(pk=self.adapter.pk)


def peft(rank: int, *, width: int = 64) -> dict[str, bytes]:
    """The files of a PEFT adapter, one pair of matrices of this rank."""
    head: dict[str, Any] = {}
    at = 0
    for half, shape in (("A", [rank, width]), ("B", [width, rank])):
        name = f"base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight"
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + 2 * rank * width]}
        at += 2 * rank * width
    text = json.dumps(head).encode()
    config = json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank}).encode()
    return {CONFIG: config, WEIGHTS: struct.pack("<Q", len(text)) + text + bytes(at), "README.md": b"#"}


class Folders(Site):
    """The same with a PEFT adapter, of a model that vLLM runs."""

    path, engines, scale = "/srv/deep", (EngineBuild(kind="vllm", version="1"),), 1.0

    def stock(self) -> Model:
        self.repo.commit(peft(8))
        profile = {"engine": "vllm", "memory": 1 << 30}
        return a_model("base", weights_path=self.path, profile=profile)

    def changes(self, name: str = "") -> str:
        return self.repo.commit(peft(16))


@pytest.fixture
def site(stocked_hub: Hub, files: Path) -> Site:
    return Site(stocked_hub, files)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What replicas say, and (after it) the names that they were asked for."""
    said: list[Any] = [smoke.Answer(text="calm", tokens=2, first_token_s=0.1, total_s=0.2, tokens_per_second=20.0)]

    def ask(*, model: str, **words: Any) -> smoke.Answer:
        said.append(model)
        found: smoke.Answer | Exception = said[0]
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(smoke, "ask", ask)
    return said


def opened(site: Site, kind: str = "adapter_update") -> Job:
    return updates.begin_adapter(kind=kind, adapter=site.now(), actor="user:x")


def until_swapped(site: Site) -> tuple[Job, Version]:
    site.changes()
    job = run(opened(site))
    new = Version.objects.exclude(pk=site.first.pk).get()
    assert JobStep.objects.get(job=job, name="mirror").state == "running", job.message
    assert site.now().version == site.first
    site.hold(new)
    run(job)
    assert site.now().version == new, job.message
    tick()
    return job, new


def updated(site: Site) -> Version:
    job, new = until_swapped(site)
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    run(job)
    tick()
    site.leave()
    run(job)
    assert (job.state, job.code) == ("done", "")
    return new


def entry() -> Any:
    return compile_snapshot(now=database_now()).models[0].adapters[0]


def test_the_new_file_is_fetched_beside_swapped_and_each_new_replica_asked_for_the_adapter(
    site: Site, answers: list[Any]
) -> None:
    job, new = until_swapped(site)
    assert site.running() == {site.first.pk: "ready", new.pk: "pending"}
    assert (entry().weights, entry().former) == (f"{new.pk}/calm.gguf", f"{site.first.pk}/calm.gguf"), "both answer"
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    tick()
    assert site.running() == {site.first.pk: "ready", new.pk: "ready"}, "nothing gives way to what has not answered"
    run(job)
    tick()
    assert site.running() == {new.pk: "ready"}
    site.leave()
    run(job)
    assert (job.state, job.code) == ("done", "")
    assert (job.result["adapter"], job.result["updated"], job.result["changed"]) == ("calm", True, ["calm.gguf"])
    assert set(answers[1:]) == {"calm"}
    row = site.now()
    assert (row.previous, row.scale, row.size, row.former_facts) == (site.first, 0.5, new.size, site.adapter.facts)
    assert row.facts != site.adapter.facts, "the new file's own"
    assert not ModelStanding.objects.filter(vetted__isnull=False).exists()


def test_an_adapter_that_lay_on_the_nodes_is_updated_once_its_origin_is_known(
    stocked_hub: Hub, files: Path, answers: list[Any]
) -> None:
    class Lying(Site):
        """The adapter is a file that an operator put there."""

        def __init__(self) -> None:
            OneNode.__init__(self)
            self.files, self.repo, self.has = files, stocked_hub.add(Repo(REPO)), {str(files / "one.gguf"): 1}
            self.put()
            self.adapter = adapters.add(actor=ACTOR, model=self.model, name="calm", path=str(files / "one.gguf"))
            self.beat()
            tick()
            self.ready(Replica.objects.get())

    site = Lying()
    with pytest.raises(Refused, match="llmgw model origin calm"):
        opened(site)
    # the repository calls its file otherwise than the operator did: it is none that has it
    with pytest.raises(Refused, match=r"has no file one\.gguf"):
        origins.give(actor=ACTOR, of=site.now(), repository=REPO)
    site.repo.commit({"one.gguf": (files / "one.gguf").read_bytes()})
    origins.give(actor=ACTOR, of=site.now(), repository=REPO)
    assert run(opened(site)).code == "update_not_needed"
    site.repo.commit({"one.gguf": (files / "two.gguf").read_bytes()})
    job = run(opened(site))
    new = Version.objects.get()
    site.hold(new)
    run(job)
    tick()
    row = site.now()
    assert (row.version, row.path, row.former_path) == (new, "", str(files / "one.gguf")), job.message
    assert (entry().weights, entry().former) == (f"{new.pk}/one.gguf", str(files / "one.gguf")), "both answer"
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    run(job)
    tick()
    site.leave()
    run(job)
    assert (job.state, job.code) == ("done", "")
    assert not adapter_updates.look(site.now())
    with pytest.raises(Refused, match="no earlier version"):
        opened(site, "adapter_rollback")


def test_a_failed_update_of_an_adapter_that_lay_on_the_nodes_leaves_it_there(stocked_hub: Hub, files: Path) -> None:
    path = str(files / "one.gguf")
    repo = stocked_hub.add(Repo(REPO))
    repo.commit({"one.gguf": (files / "one.gguf").read_bytes()})
    model = a_model("base", weights_path=str(files / "base.gguf"), profile={"memory": 1 << 28})
    row = adapters.add(actor=ACTOR, model=model, name="calm", path=path)
    before, version = updates.adapter_now(row), a_version(REPO, first="one.gguf")
    updates.swap_adapter(actor=ACTOR, adapter=row, version=version, facts={}, before=before, why="")
    assert updates.swap_adapter_back(actor=ACTOR, adapter=row, version_id=version.pk, before=before, why="")
    row = Adapter.objects.get()
    assert (row.version, row.path, row.former_path, row.facts) == (None, path, "", before["facts"])


def test_the_way_back_fetches_nothing(site: Site, answers: list[Any]) -> None:
    before = site.now().facts
    new = updated(site)
    job = run(opened(site, "adapter_rollback"))
    tick()
    assert site.now().version == site.first
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    run(job)
    tick()
    site.leave()
    run(job)
    assert (job.state, job.code) == ("done", "")
    assert (site.now().previous, site.now().facts) == (new, before)
    assert (job.result["commit"], "changed" in job.result) == (site.first.commit, False)
    assert Version.objects.count() == 2


def test_a_new_file_that_is_no_adapter_of_the_model_ends_the_job_and_nothing_is_fetched(site: Site) -> None:
    site.changes("base.gguf")
    job = run(opened(site))
    assert (job.state, job.code) == ("failed", "adapter_not_an_adapter")
    assert (site.now().version, Version.objects.count()) == (site.first, 1)


def test_nothing_new_is_no_update(site: Site) -> None:
    site.repo.commit({"calm.gguf": (site.files / "one.gguf").read_bytes(), "README.md": b"# other words"})
    job = run(opened(site))
    assert (job.state, job.code) == ("done", "update_not_needed")
    assert job.result == {"model": "base", "adapter": "calm", "updated": False}


@pytest.mark.parametrize("how", ["silent", "cancelled"])
def test_what_does_not_come_to_its_good_end_leaves_the_adapter_as_it_was(
    site: Site, answers: list[Any], how: str
) -> None:
    job, new = until_swapped(site)
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    if how == "silent":
        answers[0] = Refused(Kind.UPSTREAM, "smoke_test_failed", "it says nothing")
    else:
        rows.cancel(job_id=job.id, actor="user:x")
    run(job)
    run(job)
    assert job.state == ("failed" if how == "silent" else "cancelled")
    row = site.now()
    assert (row.version, row.previous, row.facts) == (site.first, None, site.adapter.facts)
    tick()
    assert site.running() == {site.first.pk: "ready"}
    assert Version.objects.filter(pk=new.pk).exists() == (how == "silent")


def test_one_at_a_time_with_the_models_own_update(site: Site) -> None:
    job = opened(site)
    Adapter.objects.update(previous=site.first)
    for kind in ("adapter_update", "adapter_rollback"):
        with pytest.raises(Refused, match="is open already") as refused:
            opened(site, kind)
        assert refused.value.code == "job_already_open"
    with pytest.raises(Refused, match="a job adapter_update for base is open already"):
        rows.open(kind="update", subject="base", args={"name": "base"}, actor="x")
    assert Job.objects.get() == job


def test_the_beat_and_the_list_name_adapters_that_changed(site: Site) -> None:
    asked.check()
    (told,) = adapter_updates.standings()[site.model.pk]
    assert (told["checked_at"] is not None, told["changed"], told["repository"]) == (True, [], REPO)
    assert told["newest"] == site.first.commit
    commit = site.changes()
    assert adapter_updates.check_all(older_than=3600) == (), "it was asked just now"
    assert adapter_updates.check_all(older_than=-1) == ("calm",)
    (told,) = adapter_updates.standings([site.model.pk])[site.model.pk]
    assert (told["changed"], told["newest"]) == (["calm.gguf"], commit)


def test_a_file_on_the_nodes_has_no_origin_and_a_former_version_stays(site: Site, answers: list[Any]) -> None:
    path = str(site.files / "two.gguf")
    local = adapters.add(actor=ACTOR, model=Model.objects.get(), name="local", path=path)
    with pytest.raises(Refused) as refused:
        updates.begin_adapter(kind="adapter_update", adapter=local, actor="x")
    assert refused.value.code == "origin_unknown"
    with pytest.raises(Refused) as refused:
        updates.begin_adapter(kind="adapter_rollback", adapter=local, actor="x")
    assert refused.value.code == "nothing_to_roll_back"
    adapters.remove(actor=ACTOR, adapter=local)
    tick()
    updated(site)
    with pytest.raises(Refused, match="adapter") as refused:
        weights.remove(actor=ACTOR, version=site.first)
    assert refused.value.code == "still_in_use"


def test_a_folder_of_an_adapter_is_updated_and_put_back_as_one(
    stocked_hub: Hub, files: Path, answers: list[Any]
) -> None:
    site = Folders(stocked_hub, files)
    assert (site.now().facts["format"], site.now().facts["rank"]) == ("safetensors", 8)
    job, new = until_swapped(site)
    assert {item["path"] for item in new.manifest["files"]} == {CONFIG, WEIGHTS}
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    run(job)
    tick()
    site.leave()
    run(job)
    assert (job.state, job.code, set(job.result["changed"])) == ("done", "", {CONFIG, WEIGHTS})
    assert set(answers[1:]) == {"calm"}
    assert (site.now().facts["rank"], site.running()) == (16, {new.pk: "ready"})
    back = run(opened(site, "adapter_rollback"))
    tick()
    site.ready(Replica.objects.filter(run=True).latest("created_at"))
    run(back)
    tick()
    site.leave()
    run(back)
    assert (back.state, site.now().facts["rank"], site.now().version) == ("done", 8, site.first)


def test_a_folder_that_is_no_adapter_of_the_model_any_more_ends_the_job(stocked_hub: Hub, files: Path) -> None:
    site = Folders(stocked_hub, files)
    site.repo.commit({**peft(8), CONFIG: json.dumps({"peft_type": "IA3"}).encode()})
    job = run(opened(site))
    assert (job.state, job.code) == ("failed", "adapter_not_lora")
    assert Version.objects.count() == 1
