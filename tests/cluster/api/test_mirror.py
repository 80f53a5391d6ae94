"""/mirror and /updates over the admin API, with a hub that answers as the real one does."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Model, Version
from cluster.domain.fetching import FetchReport
from cluster.models import Job
from cluster.wire import WeightsReport
from tests.api.calls import Caller, a_caller
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import a_model, a_version
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller() -> Caller:
    return a_caller(superuser=True)


def test_a_version_is_added_once_listed_and_removed(stocked_hub: Hub, caller: Caller) -> None:
    asked = {"source": ["org/tiny-GGUF"], "quantization": "F16"}
    first = caller("POST", "mirror", asked)
    assert (first.status, first.body["repository"], first.body["quantization"]) == (201, "org/tiny-GGUF", "F16")
    assert (first.body["projector"], first.body["whole"]) == ("mmproj-F16.gguf", False)
    assert caller("POST", "mirror", asked).body["id"] == first.body["id"]
    (row,) = caller("GET", "mirror").body
    assert [item["path"] for item in row["files"]] == ["tiny-F16.gguf", "mmproj-F16.gguf"]
    assert len(row["files"][0]["sha256"]) == 64
    assert caller("DELETE", f"mirror/{row['id']}").status == 204
    assert caller("GET", "mirror").body == []
    assert caller("DELETE", f"mirror/{row['id']}").body["error"]["code"] == "version_unknown"


def test_who_holds_it_and_who_fetches_it_is_told(caller: Caller) -> None:
    version = a_version(size=1000)
    one, two = Machine("one"), Machine("two")
    one.heartbeat(weights_mark="x", weights=(WeightsReport(path=version.pk, size=1000),), fetches=())
    told = FetchReport(version=version.pk, size=1000, there=250, rate=50.0, source=one.node.id, shared=200)
    two.heartbeat(fetches=(told,))
    row = caller("GET", f"mirror/{version.pk}").body
    assert (row["whole"], row["holders"]) == (True, [{"node": "one", "heard": True}])
    (fetcher,) = row["fetchers"]
    assert (fetcher["node"], fetcher["there"], fetcher["size"], fetcher["rate"]) == ("two", 250, 1000, 50)
    assert fetcher["shared"] == 200


def test_what_a_model_needs_is_not_removed(caller: Caller) -> None:
    now, before = a_version("acme/now"), a_version("acme/before")
    model = a_model("m", version=now)
    Model.objects.filter(pk=model.pk).update(previous=before)
    rows = {row["id"]: row["users"] for row in caller("GET", "mirror").body}
    assert rows == {now.pk: ["model m"], before.pk: ["earlier version of m"]}
    for version in (now, before):
        answer = caller("DELETE", f"mirror/{version.pk}")
        assert (answer.status, answer.body["error"]["code"]) == (409, "still_in_use")
    assert Version.objects.count() == 2


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_field"),
        ({"source": []}, 400, "invalid_value"),
        ({"source": ["org/tiny-GGUF"]}, 400, "several_models"),
        ({"source": ["/etc/passwd"]}, 400, "source_not_fetched"),
        ({"source": ["https://huggingface.co/org/tiny"]}, 400, "source_is_a_page"),
        ({"source": ["http://127.0.0.9:1/m.gguf"]}, 400, "checksum_missing"),
        ({"source": ["http://127.0.0.9:1/m.gguf"], "checksums": ["1" * 64]}, 502, "address_failed"),
        ({"source": ["org/gated"]}, 403, "repository_gated"),
        ({"source": ["org/tiny-GGUF"], "quantization": "Q2_K"}, 400, "quantization_not_in_repository"),
        ({"source": ["org/tiny-GGUF"], "surprise": 1}, 400, "unknown_field"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_refused(
    stocked_hub: Hub, caller: Caller, body: dict[str, Any], status: int, code: str
) -> None:
    answer = caller("POST", "mirror", body)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)
    assert not Version.objects.exists()


def test_updates_are_listed_checked_and_opened_as_jobs(stocked_hub: Hub, caller: Caller) -> None:
    small = tiny_gguf().read_bytes()
    repo = stocked_hub.add(Repo("org/moving"))
    first = repo.commit({"m-Q8_0.gguf": small})
    made = caller("POST", "mirror", {"source": ["org/moving"]}).body
    a_model("m", version=Version.objects.get(pk=made["id"]), profile={"memory": 1 << 28})
    (row,) = caller("GET", "updates").body
    assert (row["repository"], row["commit"], row["given_by"], row["checked_at"]) == (
        "org/moving",
        first,
        "version",
        None,
    )
    second = repo.commit({"m-Q8_0.gguf": small + b"x"})
    row = caller("POST", "models/m/check-origin").body
    assert (row["newest"], row["changed"]) == (second, ["m-Q8_0.gguf"])
    job = caller("POST", "models/m/update")
    assert (job.status, job.body["kind"], job.body["subject"]) == (202, "update", "m")
    assert caller("POST", "models/m/update").body["error"]["code"] == "job_already_open"
    assert caller("POST", "models/m/rollback").body["error"]["code"] == "nothing_to_roll_back"
    Model.objects.update(previous=Version.objects.get(pk=made["id"]))
    assert "a job update for m is open" in caller("POST", "models/m/rollback").body["error"]["message"]


def test_an_origin_is_given_over_the_api_by_the_size_that_nodes_report(stocked_hub: Hub, caller: Caller) -> None:
    small = tiny_gguf().read_bytes()
    Model.objects.create(name="far/away", weights_path="/elsewhere/tiny-F16.gguf")
    assert caller("POST", "models/far/away/origin", {}).body["error"]["code"] == "origin_unproven"
    lies = (WeightsReport(path="/elsewhere/tiny-F16.gguf", size=len(small)),)
    Machine("one").heartbeat(weights_mark="x", weights=lies)
    row = caller("POST", "models/far/away/origin", {"repository": "org/tiny-GGUF"})
    assert (row.status, row.body["repository"], row.body["name"]) == (200, "org/tiny-GGUF", "far/away")


def test_bench_is_a_job_with_bounded_words(caller: Caller) -> None:
    a_model("m")
    for body in ({"ttft": 0}, {"seconds": 100}, {"most": 0}, {"ttft": float("inf")}, {"words": 1}):
        assert caller("POST", "models/m/bench", body).status == 400
    assert caller("POST", "models/m/bench", {"ttft": 1.5, "most": 8}).status == 202
    assert Job.objects.get().args == {"name": "m", "ttft": 1.5, "most": 8}


def test_who_may_not_change_models_may_not_do_it_here(caller: Caller) -> None:
    a_model("m")
    reader = a_caller("reader", "catalog.view_model", "catalog.view_version", "cluster.view_node")
    assert reader("GET", "mirror").status == reader("GET", "updates").status == 200
    assert reader("POST", "mirror", {"source": ["a/b"]}).status == 403
    assert reader("DELETE", "mirror/ver_0123456789").status == 403
    for verb in ("check-origin", "origin", "update", "rollback", "bench"):
        assert reader("POST", f"models/m/{verb}", {}).status == 403
