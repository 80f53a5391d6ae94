"""`llmgw model adapters` against a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.models import Job
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model
from tests.tiny import make_tiny_gguf

pytestmark = pytest.mark.django_db(transaction=True)


def test_adapters_are_added_listed_and_removed(llmgw: Llmgw, stocked_hub: Hub, tmp_path: Path) -> None:
    loud = tmp_path / "loud.gguf"
    make_tiny_gguf(tmp_path / "base.gguf", loras=[(loud, "Something loud."), (tmp_path / "calm.gguf", "Calm it is.")])
    repo = stocked_hub.add(Repo("org/calm-LoRA", base_model="org/tiny", relation="adapter"))
    repo.commit({"calm-f16.gguf": (tmp_path / "calm.gguf").read_bytes()})
    a_model("base", weights_path=str(tmp_path / "base.gguf"))
    assert "base has no adapters: add one" in llmgw("model", "adapters", "base").out
    added = llmgw("model", "adapters", "base", "add", str(loud), "--scale", "0.5")
    assert (added.code, added.err) == (0, "")
    assert added.out == "Added loud to base; it can be asked for when a replica has loaded it.\n"
    fetched = llmgw("model", "adapters", "base", "add", "org/calm-LoRA", "--json")
    assert (fetched.json["name"], fetched.json["repository"]) == ("calm-LoRA", "org/calm-LoRA")
    found = llmgw("model", "search", "--adapters-of", "org/tiny")
    assert "gguf, adapter, held" in found.out
    listed = llmgw("model", "adapters", "base", "list")
    assert str(loud) in listed.out
    assert f"org/calm-LoRA {repo.head[:8]}" in listed.out
    assert [row["name"] for row in llmgw("model", "adapters", "base", "list", "--json").json] == ["calm-LoRA", "loud"]
    assert llmgw("model", "adapters", "base", "remove", "loud").out == "Removed loud from base.\n"
    again = llmgw("model", "adapters", "base", "remove", "loud")
    assert again.code == 4
    assert "no adapter 'loud'" in again.err


def test_what_is_wrong_with_a_command_or_a_file_is_told(llmgw: Llmgw, tmp_path: Path) -> None:
    make_tiny_gguf(tmp_path / "base.gguf")
    a_model("base", weights_path=str(tmp_path / "base.gguf"))
    assert (
        "is no action: write list, add, remove, update or rollback"
        in llmgw("model", "adapters", "base", "drop", "x").err
    )
    assert "add: name the adapter" in llmgw("model", "adapters", "base", "add").err
    assert "`list` takes no adapter" in llmgw("model", "adapters", "base", "list", "x").err
    assert "are for a repository" in llmgw("model", "adapters", "base", "add", "/x.gguf", "--file", "y").err
    refused = llmgw("model", "adapters", "base", "add", str(tmp_path / "base.gguf"), "--name", "x")
    assert refused.code == 1
    assert "is a model's file, no adapter: name a LoRA adapter's file" in refused.err


def test_newer_files_of_adapters_are_listed_and_fetched_by_their_names(
    llmgw: Llmgw, stocked_hub: Hub, tmp_path: Path
) -> None:
    make_tiny_gguf(
        tmp_path / "base.gguf", loras=[(tmp_path / "calm.gguf", "Calm it is."), (tmp_path / "new.gguf", "Calm.")]
    )
    repo = stocked_hub.add(Repo("org/calm-LoRA"))
    repo.commit({"calm-f16.gguf": (tmp_path / "calm.gguf").read_bytes()})
    a_model("base", weights_path=str(tmp_path / "base.gguf"))
    llmgw("model", "adapters", "base", "add", "org/calm-LoRA", "--name", "calm")
    assert "calm (adapter of base)" in llmgw("model", "updates").out
    newest = repo.commit({"calm-f16.gguf": (tmp_path / "new.gguf").read_bytes()})
    assert f"1 file changed, at {newest[:8]}" in llmgw("model", "updates", "--check").out
    assert "no earlier version" in llmgw("model", "rollback", "calm").err
    opened = llmgw("model", "update", "calm", "--detach")
    assert (opened.code, opened.err) == (0, "")
    assert Job.objects.get().kind == "adapter_update"
    assert "is open already" in llmgw("model", "adapters", "base", "update", "calm").err
    assert "no adapter 'x'" in llmgw("model", "adapters", "base", "update", "x").err
