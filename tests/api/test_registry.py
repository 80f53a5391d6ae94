"""/registry over the admin API, with a hub that answers as the real one does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.api.calls import Caller, a_caller
from tests.cluster.rows import Machine
from tests.hub.app import Hub

pytestmark = pytest.mark.django_db


@pytest.fixture
def caller() -> Caller:
    return a_caller(superuser=True)


def test_repositories_are_found_page_by_page(stocked_hub: Hub, caller: Caller) -> None:
    first = caller("GET", "registry/models?search=org&limit=2").body
    assert [item["id"] for item in first["results"]] == ["org/tiny-GGUF", "org/tiny"]
    assert (first["results"][0]["formats"], first["results"][0]["downloads"]) == (["gguf"], 10)
    rest = caller("GET", f"registry/models?{urlencode({'after': first['after']})}").body
    assert [item["id"] for item in rest["results"]] == ["org/gated", "org/broken"]
    found = caller("GET", "registry/models?file_format=safetensors").body
    assert [item["id"] for item in found["results"]] == ["org/tiny"]


def test_a_repository_with_the_models_that_its_files_make(stocked_hub: Hub, caller: Caller) -> None:
    found = caller("GET", "registry/models/org/tiny-GGUF").body
    assert found["commit"] == stocked_hub.repos["org/tiny-GGUF"].head
    assert [(item["name"], item["quantization"], len(item["files"])) for item in found["sets"]] == [
        ("tiny-F16.gguf", "F16", 1), ("tiny-Q8_0.gguf", "Q8_0", 1),
    ]  # fmt: skip
    assert [item["path"] for item in found["projectors"]] == ["mmproj-F16.gguf"]
    assert len(found["sets"][0]["files"][0]["sha256"]) == 64


def test_a_plan_says_for_every_file_how_it_would_run_here(stocked_hub: Hub, caller: Caller) -> None:
    Machine("one").heartbeat()
    found = caller("GET", "registry/models/org/tiny-GGUF/plan?slots=2").body
    assert (found["facts"]["layers"], found["facts"]["heads"]) == (2, 4)
    assert [item["quantization"] for item in found["variants"]] == ["F16", "Q8_0"]
    way = found["variants"][0]["ways"][0]
    assert (way["engine"], way["gpu_class"], way["slots"], way["free_now"]) == ("llama.cpp", "", 2, True)
    assert [item["node"] for item in way["takes"]] == ["one"]
    assert way["context"] == way["context_max"] == 4096
    assert stocked_hub.sent() < 300_000  # one header, of the smallest file
    one = caller("GET", "registry/models/org/tiny-GGUF/plan?quantization=q8_0").body
    assert [item["name"] for item in one["variants"]] == ["tiny-Q8_0.gguf"]


def test_what_fits_nowhere_is_told_with_its_reason(stocked_hub: Hub, caller: Caller) -> None:
    Machine("one").heartbeat()
    found = caller("GET", "registry/models/org/tiny/plan").body
    assert found["variants"][0]["ways"] == []
    assert found["variants"][0]["code"]
    assert "safetensors" in found["variants"][0]["message"]
    empty = caller("GET", "registry/models/org/tiny-GGUF/plan?gpu_class=H100").body
    assert empty["variants"][0]["ways"] == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("registry/models/org/nothing", 404, "repository_unknown"),
        ("registry/models/no-owner", 400, "repository_name_bad"),
        ("registry/models/a/b/c", 400, "repository_name_bad"),
        ("registry/models/org/tiny-GGUF?revision=no-such", 404, "revision_unknown"),
        ("registry/models/org/gated/plan", 403, "repository_gated"),
        ("registry/models/org/broken/plan", 400, "gguf_not_gguf"),
        ("registry/models/org/words/plan", 400, "repository_has_no_model"),
        ("registry/models/org/tiny-GGUF/plan?quantization=Q2_K", 400, "quantization_not_in_repository"),
        ("registry/models/org/tiny-GGUF/plan?file=mmproj-F16.gguf", 400, "file_not_in_repository"),
        ("registry/models/org/tiny-GGUF/plan?context=0", 400, "invalid_value"),
        ("registry/models/org/tiny-GGUF/plan?context=many", 400, "invalid_value"),
        ("registry/models?file_format=onnx", 400, "invalid_value"),
        ("registry/models?limit=101", 400, "invalid_value"),
    ],
)
def test_what_cannot_be_had_is_refused(stocked_hub: Hub, caller: Caller, path: str, status: int, code: str) -> None:
    answer = caller("GET", path)
    assert (answer.status, answer.body["error"]["code"]) == (status, code)


def test_a_registry_out_of_order_is_no_defect_of_ours(stocked_hub: Hub, caller: Caller, settings: Any) -> None:
    stocked_hub.faults.rate_limits = 1
    assert caller("GET", "registry/models").status == 429
    stocked_hub.faults.login_page = True
    assert caller("GET", "registry/models").body["error"]["code"] == "registry_answer_bad"
    settings.CONFIG = replace(settings.CONFIG, private_addresses=False)
    assert caller("GET", "registry/models").body["error"]["code"] == "address_refused"


def test_only_who_may_add_models_asks_the_registry(stocked_hub: Hub) -> None:
    caller = a_caller("reader", "catalog.view_model", "cluster.view_node")
    for path in ("registry/models", "registry/models/org/tiny", "registry/models/org/tiny/plan"):
        assert caller("GET", path).status == 403
    assert stocked_hub.seen == []
