"""workers.tasks.update: an update and the way back, against the small hub; nodes are told what a real one would say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.models import Model, Origin, Version
from catalog.services import mirror, origins, served
from cluster.models import Job, JobStep, ModelStanding, Replica
from cluster.services import jobs as rows
from cluster.services import updates
from llmgw_site.lib.errors import Kind, Refused
from tests.cluster.rows import report, tick
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import ACTOR, a_model
from tests.tiny import tiny_gguf
from tests.workers.tasks.site import OneNode, run, step
from workers import smoke
from workers.tasks import origins as asked

pytestmark = pytest.mark.django_db
REPO = "org/changing"


class Site(OneNode):
    """One node, one model of which one replica is ready, and the repository that it came from."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self.small = tiny_gguf().read_bytes()
        self.repo = hub.add(Repo(REPO))
        self.repo.commit({"m-Q8_0.gguf": self.small, "README.md": b"#"})
        self.first = mirror.add(actor=ACTOR, source=[REPO])
        self.hold(self.first)
        self.model = a_model("m", version=self.first, profile={"memory": 1 << 28})
        tick()
        self.ready(Replica.objects.get())

    def changes(self, data: bytes = bytes(64)) -> str:
        return self.repo.commit({"m-Q8_0.gguf": self.small + data, "README.md": b"# new"})

    def serves(self) -> Version:
        self.model.refresh_from_db()
        version = self.model.version
        assert version is not None
        return version

    def running(self) -> dict[str, str]:
        """State of each replica that shall run, by the version that it was told."""
        return {row.serve["weights"]["version"]: row.state for row in Replica.objects.filter(run=True)}


@pytest.fixture
def site(stocked_hub: Hub) -> Site:
    return Site(stocked_hub)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What replicas say when they are asked, the last of it again and again: an answer or an exception. And who was asked."""
    said: list[Any] = [smoke.Answer(text="five", tokens=2, first_token_s=0.1, total_s=0.2, tokens_per_second=20.0)]

    def ask(*, replica: str = "", **words: Any) -> smoke.Answer:
        found: smoke.Answer | Exception = said[0] if len(said) == 1 else said.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(smoke, "ask", ask)
    return said


def opened(kind: str = "update") -> Job:
    return rows.open(kind=kind, subject="m", args={"name": "m"}, actor="user:x")


def until_swapped(site: Site) -> tuple[Job, Version]:
    """An update as far as the model is to serve the new version, and its first new replica placed."""
    site.changes()
    job = run(opened())
    new = Version.objects.exclude(pk=site.first.pk).get()
    assert (job.state, step(job, "mirror").state) == ("running", "running")
    assert site.serves() == site.first
    site.hold(new)
    run(job)
    assert site.serves() == new, (job.message, [(row.name, row.state, row.detail) for row in job.steps.all()])
    tick()
    return job, new


def newest() -> Replica:
    return Replica.objects.filter(run=True).latest("created_at")


def test_an_update_is_fetched_beside_swapped_and_each_new_replica_asked(site: Site, answers: list[Any]) -> None:
    job, new = until_swapped(site)
    assert site.running() == {site.first.pk: "ready", new.pk: "pending"}
    site.ready(newest())
    tick()
    assert site.running() == {site.first.pk: "ready", new.pk: "ready"}, "nothing gives way to what has not answered"
    run(job)
    assert step(job, "replace").detail == "1 of 1 replaced, old ones finish their requests"
    tick()
    assert site.running() == {new.pk: "ready"}
    run(job)
    assert step(job, "replace").detail == "1 of 1 replaced, 1 old one may still be asked"
    site.leave()
    run(job)
    assert (job.state, job.code) == ("done", "")
    assert job.result["answers"][0]["text"] == "five"
    assert (site.serves(), site.model.previous) == (new, site.first)
    assert ModelStanding.objects.get().vetted is None
    assert origins.standings()[0]["changed"] == []


def test_where_nothing_changed_the_job_is_done_at_once(site: Site) -> None:
    site.repo.commit({"m-Q8_0.gguf": site.small, "README.md": b"# other words"})
    job = run(opened())
    assert (job.state, job.code, job.result["updated"]) == ("done", "update_not_needed", False)
    assert [row.state for row in job.steps.all()] == ["done", *["skipped"] * 4]
    assert Version.objects.count() == 1


def test_a_new_version_that_does_not_start_is_taken_back_and_the_old_one_serves_all_the_time(site: Site) -> None:
    job, new = until_swapped(site)
    row = newest()
    site.beat(report(row, "failed", code="engine_refused", message="it cannot load that"))
    run(job)
    assert (job.state, job.code) == ("failed", "engine_refused")
    assert "it cannot load that" in job.message
    assert (site.serves(), site.model.previous) == (site.first, None)
    assert ModelStanding.objects.get().vetted is None
    tick()
    assert site.running() == {site.first.pk: "ready"}
    assert Version.objects.filter(pk=new.pk).exists(), "what was fetched stays for another try"


def test_a_new_version_that_does_not_answer_is_taken_back(site: Site, answers: list[Any]) -> None:
    job, _ = until_swapped(site)
    site.ready(newest())
    answers[:] = [Refused(Kind.UPSTREAM, "smoke_test_failed", "the model answered without a single token")]
    run(job)
    assert (job.state, job.code) == ("failed", "smoke_test_failed")
    assert site.serves() == site.first
    tick()
    assert site.running() == {site.first.pk: "ready"}


def test_silence_is_given_a_minute(site: Site, answers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    job, _ = until_swapped(site)
    site.ready(newest())
    answers[:] = [smoke.NotYet("another replica answered")]
    assert run(job).state == "running"
    monkeypatch.setattr("workers.tasks.update.SILENT", -1.0)
    run(job)
    assert (job.state, job.code) == ("failed", "smoke_test_failed")
    assert "another replica answered" in job.message


def test_a_model_that_is_removed_ends_the_fetching_of_its_update(site: Site) -> None:
    site.changes()
    job = run(opened())
    served.remove(actor=ACTOR, model=site.model)
    run(job)
    assert (job.state, job.code, step(job, "mirror").state) == ("failed", "model_not_wanted", "failed")


@pytest.mark.parametrize("when", ["fetching", "replacing"])
def test_cancelled_the_model_is_as_it_was_and_nothing_is_left(site: Site, when: str) -> None:
    if when == "fetching":
        site.changes()
        job = run(opened())
    else:
        job, _ = until_swapped(site)
    rows.cancel(job_id=job.id, actor="user:x")
    run(job)
    assert job.state == "cancelled"
    assert site.serves() == site.first
    assert list(Version.objects.all()) == [site.first]


def test_an_update_that_cannot_be_taken_back_is_over_all_the_same(
    site: Site, answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter that fits only the new weights was added meanwhile, say. Replicas must not wait for an answer for ever."""

    def refuse(**words: Any) -> bool:
        raise Refused(Kind.INVALID, "adapter_wrong_architecture", "no")

    job, _ = until_swapped(site)
    assert ModelStanding.objects.get().vetted is not None
    monkeypatch.setattr(updates, "swap_back", refuse)
    rows.cancel(job_id=job.id, actor=ACTOR)
    run(job)
    assert (job.state, ModelStanding.objects.get().vetted) == ("cancelled", None)


def test_a_failed_update_is_not_tried_again_beside_an_open_rollback(site: Site, answers: list[Any]) -> None:
    job, new = until_swapped(site)
    site.beat(report(newest(), "failed", code="engine_refused", message="no"))
    run(job)
    Model.objects.update(previous=new)
    site.model.refresh_from_db()
    other = updates.begin(kind="rollback", model=site.model, args={}, actor=ACTOR)
    with pytest.raises(Refused) as refused:
        rows.retry(job_id=job.id, actor=ACTOR)
    assert (refused.value.code, refused.value.extra) == ("job_already_open", {"job_id": other.pk})
    rows.cancel(job_id=other.id, actor=ACTOR)
    run(other)
    rows.retry(job_id=job.id, actor=ACTOR)


def test_a_failed_update_is_tried_again_where_it_was(site: Site, answers: list[Any]) -> None:
    job, new = until_swapped(site)
    site.beat(report(newest(), "failed", code="engine_refused", message="no"))
    run(job)
    tick()
    rows.retry(job_id=job.id, actor="user:x")
    run(job)
    assert (job.state, site.serves()) == ("running", new)


def test_a_worker_that_dies_after_the_swap_goes_on_from_there(site: Site, answers: list[Any]) -> None:
    """The step is not noted; begun again it finds the model swapped."""
    job, new = until_swapped(site)
    JobStep.objects.filter(job=job, name="replace").update(data={}, progress=0.0)
    assert run(job).state == "running"
    site.model.refresh_from_db()
    assert (site.serves(), site.model.previous) == (new, site.first)


def test_what_somebody_else_changed_meanwhile_stays(site: Site) -> None:
    site.changes()
    job = run(opened())
    new = Version.objects.exclude(pk=site.first.pk).get()
    other = mirror.add(actor=ACTOR, source=["org/tiny-GGUF"], quantization="F16", projector="none")
    Model.objects.update(version=other, weights_size=other.size, facts=other.facts)
    site.hold(new)
    run(job)
    assert (job.state, job.code) == ("failed", "update_overtaken")
    assert site.serves() == other


def updated(site: Site) -> Version:
    job, new = until_swapped(site)
    site.ready(newest())
    run(job)
    tick()
    site.leave()
    assert run(job).state == "done"
    return new


def test_rollback_goes_back_without_fetching(site: Site, answers: list[Any], stocked_hub: Hub) -> None:
    new = updated(site)
    stocked_hub.seen.clear()
    job = run(opened("rollback"))
    assert site.serves() == site.first
    tick()
    site.ready(newest())
    run(job)
    tick()
    site.leave()
    run(job)
    assert job.state == "done"
    assert (site.serves(), site.model.previous) == (site.first, new)
    assert site.running() == {site.first.pk: "ready"}
    assert (job.result["version_id"], job.result["commit"], "changed" in job.result) == (
        site.first.pk,
        site.first.commit,
        False,
    )
    assert stocked_hub.seen == []


def test_rollback_needs_what_was_there_before_and_somebody_who_has_it(site: Site, answers: list[Any]) -> None:
    assert run(opened("rollback")).code == "nothing_to_roll_back"
    updated(site)
    del site.has[site.first.pk]
    site.beat()
    job = run(opened("rollback"))
    assert (job.state, job.code) == ("failed", "previous_not_held")


def test_files_on_the_nodes_are_updated_from_their_origin_and_put_back_where_that_fails(
    stocked_hub: Hub, tmp_path: Any, answers: list[Any]
) -> None:
    site = Site(stocked_hub)
    path = tmp_path / "m-Q8_0.gguf"
    path.write_bytes(site.small)
    lies = a_model("lies", weights_path=str(path))
    origins.give(actor=ACTOR, of=lies, repository=REPO)
    site.changes()
    job = run(rows.open(kind="update", subject="lies", args={"name": "lies"}, actor="user:x"))
    new = Version.objects.exclude(pk=site.first.pk).get()
    site.hold(new)
    run(job)
    lies.refresh_from_db()
    assert (lies.version, lies.weights_path, lies.previous) == (new, "", None)
    rows.cancel(job_id=job.id, actor="user:x")
    run(job)
    lies.refresh_from_db()
    assert (lies.version, lies.weights_path) == (None, str(path))


def test_the_beat_asks_what_was_not_asked_in_time_and_nothing_where_it_is_off(
    site: Site, settings: Any, stocked_hub: Hub
) -> None:
    for every, times in ((0.0, 0), (3600.0, 1), (3600.0, 1)):
        settings.CONFIG = replace(settings.CONFIG, update_check=every)
        stocked_hub.seen.clear() if not every else None
        asked.check()
        assert sum(item["path"].startswith("/api/models/") for item in stocked_hub.seen) == times


def test_what_an_update_was_told_stays_known_when_it_is_done_and_when_it_is_taken_back(
    site: Site, answers: list[Any]
) -> None:
    job, new = until_swapped(site)
    (told,) = origins.standings()
    assert (told["checked_at"] is not None, told["newest"], told["changed"]) == (True, new.commit, [])
    rows.cancel(job_id=job.id, actor=ACTOR)
    run(job)
    (told,) = origins.standings()
    assert (told["checked_at"] is not None, told["newest"], told["changed"]) == (True, new.commit, ["m-Q8_0.gguf"])
    assert origins.check_all(older_than=3600) == (), "it was asked just now"


def test_check_all_asks_each_model_once_in_its_time(site: Site) -> None:
    assert origins.check_all(older_than=3600) == ()
    commit = site.changes()
    assert origins.check_all(older_than=3600) == (), "it was asked just now"
    assert origins.check_all(older_than=-1) == ("m",)
    row = Origin.objects.get()
    assert (row.newest, row.changed) == (commit, ["m-Q8_0.gguf"])
