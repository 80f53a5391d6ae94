"""The pages *Find a model*."""

from __future__ import annotations

import pytest
from django.test import Client

from cluster.models import Job
from cluster.services import jobs
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.rows import a_user

pytestmark = pytest.mark.django_db


def test_nothing_is_asked_before_there_are_words(stocked_hub: Hub, admin: Client) -> None:
    assert "Search the registry" in admin.get("/admin/registry").content.decode()
    assert stocked_hub.seen == []


def test_repositories_are_found_and_lead_to_their_plans(stocked_hub: Hub, admin: Client) -> None:
    page = admin.get("/admin/registry?search=org&file_format=gguf").content.decode()
    assert 'href="/admin/registry/org/tiny-GGUF"' in page
    assert "gated" in page
    assert "Nothing found" in admin.get("/admin/registry?search=nothing-like-it").content.decode()


def test_a_repository_shows_how_its_files_would_run(stocked_hub: Hub, admin: Client) -> None:
    Machine("one").heartbeat()
    page = admin.get("/admin/registry/org/tiny-GGUF").content.decode()
    assert stocked_hub.repos["org/tiny-GGUF"].head[:12] in page
    for words in ("tiny-F16.gguf", "tiny-Q8_0.gguf", "Processor", "free", "one", "mmproj-F16.gguf", "2 layers"):
        assert words in page


def test_what_fits_nowhere_says_why(stocked_hub: Hub, admin: Client) -> None:
    page = admin.get("/admin/registry/org/tiny-GGUF").content.decode()
    assert "fits nowhere" in page
    assert "The cluster has no node" in page


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/admin/registry/org/gated", "ask for access at"),
        ("/admin/registry/org/nothing", "There is no repository org/nothing"),
        ("/admin/registry/x", "write OWNER/REPOSITORY"),
    ],
)
def test_what_cannot_be_had_is_told_on_the_page(stocked_hub: Hub, admin: Client, path: str, words: str) -> None:
    answer = admin.get(path)
    assert answer.status_code == 200
    assert words in answer.content.decode()


def test_a_registry_that_does_not_answer_is_told_on_the_page(stocked_hub: Hub, admin: Client) -> None:
    stocked_hub.faults.login_page = True
    page = admin.get("/admin/registry?search=x").content.decode()
    assert "The registry did not answer" in page
    assert "registry_answer_bad" in page


def test_each_file_has_a_form_that_opens_the_job_and_leads_to_it(stocked_hub: Hub, admin: Client) -> None:
    Machine("one").heartbeat()
    page = admin.get("/admin/registry/org/tiny-GGUF").content.decode()
    assert page.count("Fetch and serve") == 2
    assert page.count('<option value="auto">mmproj-F16.gguf</option><option value="none">') == 2
    assert 'name="name" required maxlength="128" autocomplete="off" value="tiny"' in page
    commit = stocked_hub.repos["org/tiny-GGUF"].head
    form = {
        "commit": commit,
        "file": "tiny-Q8_0.gguf",
        "name": "mine",
        "way": "processor",
        "on_demand": "1",
        "projector": "none",
    }
    answer = admin.post("/admin/registry/org/tiny-GGUF", form)
    job = Job.objects.get()
    assert (answer.status_code, answer.headers["location"]) == (302, f"/admin/jobs/{job.pk}")
    assert (job.kind, job.subject, job.actor) == ("serve", "mine", "user:root")
    assert job.args == {
        "name": "mine", "source": [f"org/tiny-GGUF@{commit}"], "file": "tiny-Q8_0.gguf", "way": "processor", "on_demand": True,
        "projector": "none",
    }  # fmt: skip
    assert "Look at the source" in admin.get(f"/admin/jobs/{job.pk}").content.decode()


def test_a_form_that_is_refused_stays_as_it_was_filled_in(stocked_hub: Hub, admin: Client) -> None:
    Machine("one").heartbeat()
    form = {"file": "tiny-Q8_0.gguf", "name": "two words", "way": "processor", "on_demand": "1"}
    answer = admin.post("/admin/registry/org/tiny-GGUF", form)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert "It begins with a letter or digit" in page
    assert 'value="two words"' in page
    assert page.count('id="error-name"') == 1
    assert page.count('<details class="lg-serve" open>') == 1
    assert not Job.objects.exists()


@pytest.mark.parametrize("file", ["none.gguf", ""])
def test_a_refusal_of_a_form_that_is_not_there_is_told_above(stocked_hub: Hub, admin: Client, file: str) -> None:
    Machine("one").heartbeat()
    answer = admin.post("/admin/registry/org/tiny-GGUF", {"file": file, "name": "two words", "way": "processor"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert page.count("It begins with a letter or digit") == 1
    assert "stands beside its field" not in page


def test_who_may_only_look_has_no_form_and_cannot_open_a_job(stocked_hub: Hub, client: Client) -> None:
    Machine("one").heartbeat()
    client.force_login(a_user("ann", "catalog.add_model", "cluster.view_node"))
    assert "Fetch and serve" not in client.get("/admin/registry/org/tiny-GGUF").content.decode()
    answer = client.post("/admin/registry/org/tiny-GGUF", {"file": "tiny-Q8_0.gguf", "name": "m", "way": "processor"})
    assert answer.status_code == 403
    assert not Job.objects.exists()


def test_the_sidebar_counts_jobs_that_have_not_ended_and_live_pages_keep_the_number(admin: Client) -> None:
    badge = '<span class="lg-badge num" data-open-jobs title="have not ended yet"'
    assert f"{badge} hidden></span>" in admin.get("/admin/registry").content.decode()
    for name in ("a", "b"):
        job = jobs.open(kind="serve", subject=name, args={"name": name}, actor="t")
    assert f"{badge}>2</span>" in admin.get("/admin/registry").content.decode()
    for page in ("/admin/jobs?parts=1", f"/admin/jobs/{job.pk}?parts=1"):
        assert admin.get(page).headers["X-Llmgw-Open-Jobs"] == "2"
