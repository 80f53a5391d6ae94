"""/registry over the admin API, with a hub that answers as the real one does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest

from catalog.selectors import model_views
from cluster.selectors.ways import digest_of, serve_of
from cluster.services import measuring
from tests.api.calls import Caller, a_caller
from tests.cluster.rows import Machine, a_model_row
from tests.hub.app import Hub
from tests.rows import a_version
from tests.tiny_vision import projector_bytes

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
    assert stocked_hub.sent() < 400_000  # the header of the smallest file, and the projector's
    one = caller("GET", "registry/models/org/tiny-GGUF/plan?quantization=q8_0").body
    assert [item["name"] for item in one["variants"]] == ["tiny-Q8_0.gguf"]


def test_a_plan_counts_the_projector_and_what_it_computes_with(stocked_hub: Hub, caller: Caller) -> None:
    Machine("one").heartbeat()
    path = "registry/models/org/tiny-GGUF/plan?quantization=F16"
    (sees,), (blind,) = (caller("GET", path + more).body["variants"] for more in ("", "&projector=none"))
    size = len(projector_bytes())
    assert (sees["projector"], sees["projector_size"], sees["size"]) == ("mmproj-F16.gguf", size, blind["size"] + size)
    assert size < sees["projector_memory"] < 2 * size
    assert (blind["projector"], blind["projector_memory"]) == ("", 0)
    more = sees["ways"][0]["memory"] - blind["ways"][0]["memory"]
    assert (
        sees["projector_memory"] <= more <= sees["projector_memory"] * 8 // 7 + 1
    )  # with its part of the prompts' room
    refused = caller("GET", path + "&projector=mmproj-Q4.gguf")
    assert (refused.status, refused.body["error"]["code"]) == (400, "projector_not_in_repository")


def test_a_plan_tells_what_a_bench_measured_of_the_same_file(stocked_hub: Hub, caller: Caller) -> None:
    Machine("one").heartbeat()
    version = a_version("org/tiny-GGUF", first="tiny-F16.gguf")
    model = a_model_row("mine", version=version, weights_path="", profile={"engine": "llama.cpp"})
    view = next(item for item in model_views() if item.model_id == model.pk)
    digest = digest_of(serve_of(view, view.profiles[0]), view.profiles[0])
    for tps, hardware in (
        (44.0, "processor with 16 cores"),
        (31.5, "processor with 8 cores"),
        (900.0, "1 x NVIDIA L4"),
    ):
        measuring.keep_throughput(digest=digest, hardware=hardware, tps=tps, at_once=3, first_s=0.1, objective=2.0)
    found = caller("GET", "registry/models/org/tiny-GGUF/plan").body["variants"]
    told = {item["name"]: (item["ways"][0]["tokens_per_second"], item["ways"][0]["at_once"]) for item in found}
    assert told == {"tiny-F16.gguf": (31.5, 3), "tiny-Q8_0.gguf": (None, None)}


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
