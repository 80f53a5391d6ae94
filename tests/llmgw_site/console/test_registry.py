"""The pages *Find a model*."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.hub.serve import running
from tests.hub.stocked import stocked

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def serving() -> Iterator[Hub]:
    with running() as hub:
        yield stocked(hub)


@pytest.fixture
def hub(serving: Hub, settings: Any) -> Hub:
    serving.faults.reset()
    serving.seen.clear()
    settings.CONFIG = replace(settings.CONFIG, registry=serving.base, private_addresses=True)
    return serving


def test_nothing_is_asked_before_there_are_words(hub: Hub, admin: Client) -> None:
    assert "Search the registry" in admin.get("/admin/registry").content.decode()
    assert hub.seen == []


def test_repositories_are_found_and_lead_to_their_plans(hub: Hub, admin: Client) -> None:
    page = admin.get("/admin/registry?search=org&file_format=gguf").content.decode()
    assert 'href="/admin/registry/org/tiny-GGUF"' in page
    assert "gated" in page
    assert "Nothing found" in admin.get("/admin/registry?search=nothing-like-it").content.decode()


def test_a_repository_shows_how_its_files_would_run(hub: Hub, admin: Client) -> None:
    Machine("one").heartbeat()
    page = admin.get("/admin/registry/org/tiny-GGUF").content.decode()
    assert hub.repos["org/tiny-GGUF"].head[:12] in page
    for words in ("tiny-F16.gguf", "tiny-Q8_0.gguf", "Processor", "free", "one", "mmproj-F16.gguf", "2 layers"):
        assert words in page


def test_what_fits_nowhere_says_why(hub: Hub, admin: Client) -> None:
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
def test_what_cannot_be_had_is_told_on_the_page(hub: Hub, admin: Client, path: str, words: str) -> None:
    answer = admin.get(path)
    assert answer.status_code == 200
    assert words in answer.content.decode()


def test_a_registry_that_does_not_answer_is_told_on_the_page(hub: Hub, admin: Client) -> None:
    hub.faults.login_page = True
    page = admin.get("/admin/registry?search=x").content.decode()
    assert "The registry did not answer" in page
    assert "registry_answer_bad" in page
