"""The pages *Find a model*."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.cluster.rows import Machine
from tests.hub.app import Hub

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
