"""`llmgw model search|files|plan` against a real server and a hub that answers as the real one does."""

from __future__ import annotations

import json

import pytest

from llmgw_site.lib.units import format_bytes
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.llmgw_site.cli.conftest import Llmgw
from tests.tiny_vision import projector_bytes

pytestmark = pytest.mark.django_db(transaction=True)


def test_models_of_the_registry_are_found_looked_at_and_planned(llmgw: Llmgw, stocked_hub: Hub) -> None:
    Machine("one").heartbeat()
    found = llmgw("model", "search", "tiny")
    assert (found.code, found.err) == (0, "")
    assert "org/tiny-GGUF" in found.out
    assert "org/gated" not in found.out
    assert [row["id"] for row in llmgw("model", "search", "--format", "gguf", "--json").json] == [
        "org/tiny-GGUF",
        "org/gated",
        "org/broken",
    ]
    files = llmgw("model", "files", "org/tiny-GGUF")
    assert f"org/tiny-GGUF at {stocked_hub.repos['org/tiny-GGUF'].head[:12]}, licence apache-2.0." in files.out
    assert "tiny-Q8_0.gguf" in files.out
    assert "Projector mmproj-F16.gguf" in files.out
    plan = llmgw("model", "plan", "org/tiny-GGUF", "--quant", "F16", "--context", "2048")
    assert (plan.code, plan.err) == (0, "")
    assert "tiny-F16.gguf, " in plan.out
    assert f", with mmproj-F16.gguf, {format_bytes(len(projector_bytes()))} of it, which takes " in plan.out
    assert "mmproj" not in llmgw("model", "plan", "org/tiny-GGUF", "--projector", "none").out
    assert "processor (llama.cpp): " in plan.out
    assert "free now on one; context 2048, up to 4096" in plan.out
    assert json.loads(llmgw("model", "plan", "org/tiny-GGUF", "--json").out)["repository"] == "org/tiny-GGUF"


def test_nothing_found_and_what_is_refused_are_told(llmgw: Llmgw, stocked_hub: Hub) -> None:
    assert llmgw("model", "search", "nothing-like-it").out == "Nothing found: try fewer words.\n"
    assert "It is gated" in llmgw("model", "files", "org/gated").out
    gated = llmgw("model", "plan", "org/gated")
    assert gated.code != 0
    assert f"ask for access at {stocked_hub.base}/org/gated" in gated.err
    wrong = llmgw("model", "plan", "org/tiny-GGUF", "--quant", "Q2_K")
    assert "it has F16, Q8_0" in wrong.err
    nowhere = llmgw("model", "plan", "org/tiny-GGUF")
    assert "nowhere: the cluster has no node: start an agent" in nowhere.out
