"""Adapters as rows: read before they are taken, named like nothing else, loaded by the engines that can read them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catalog.models import Adapter, Event, Model, Version
from catalog.selectors import model_views
from catalog.services import adapters, profiles, served, versions
from cluster.selectors import digest_of, serve_of
from cluster.selectors.ways import needs_of
from llmgw_site.lib.errors import Refused
from tests.cluster.threads import at_once
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import ACTOR, a_model, a_provider
from tests.tiny import make_tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model and two adapters of it."""
    folder = tmp_path_factory.mktemp("adapters")
    loras = [(folder / "loud.gguf", "Something loud."), (folder / "calm.gguf", "Something calm.")]
    make_tiny_gguf(folder / "base.gguf", loras=loras)
    return folder


@pytest.fixture
def base(files: Path) -> Model:
    return a_model("base", weights_path=str(files / "base.gguf"))


def add(model: Model, name: str = "loud", **fields: Any) -> Adapter:
    return adapters.add(actor=ACTOR, model=model, name=name, **fields)


def refusal(model: Model, name: str = "loud", **fields: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        add(model, name, **fields)
    return refused.value


def peft(folder: Path, *, layers: int = 1, width: int = 64) -> Path:
    folder.mkdir()
    head, at = {}, 0
    for half, shape in (("A", [8, width]), ("B", [width, 8])):
        name = f"base_model.model.model.layers.{layers - 1}.self_attn.q_proj.lora_{half}.weight"
        head[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + 16 * width]}
        at += 16 * width
    text = json.dumps(head).encode()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(at))
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8, "lora_alpha": 16}))
    return folder


def test_an_adapter_is_read_and_told_to_the_engines_of_its_model(base: Model, files: Path) -> None:
    row = add(base, path=str(files / "loud.gguf"), scale=0.5)
    assert row.facts["architecture"] == "llama"
    assert row.size == (files / "loud.gguf").stat().st_size
    event = Event.objects.get(kind="adapter_added")
    assert (event.message, event.about) == ("adapter loud of base added", base.id)
    view = model_views()[0]
    serve = serve_of(view, view.profiles[0])
    assert [(item.name, item.weights.path, item.rank) for item in serve.adapters] == [
        ("loud", str(files / "loud.gguf"), row.facts["rank"])
    ]
    assert view.adapters[0].scale == 0.5


def test_adding_and_removing_one_is_another_definition_and_removing_it_the_old_one_again(
    base: Model, files: Path
) -> None:
    def now() -> tuple[str, int]:
        view = model_views()[0]
        profile = view.profiles[0]
        return digest_of(serve_of(view, profile), profile), needs_of(view, profile).memory

    before = now()
    row = add(base, path=str(files / "loud.gguf"))
    assert now()[0] != before[0]
    assert now()[1] == before[1] + row.size
    adapters.remove(actor=ACTOR, adapter=row)
    assert now() == before
    assert Event.objects.filter(kind="adapter_removed", about=base.id).count() == 1


def test_no_model_and_no_adapter_has_the_name_of_another(base: Model, files: Path) -> None:
    add(base, path=str(files / "loud.gguf"))
    for taken in ("base", "loud"):
        assert refusal(base, taken, path=str(files / "calm.gguf")).code == "name_taken"
    with pytest.raises(Refused) as refused:
        a_model("loud")
    assert refused.value.code == "name_taken"
    with pytest.raises(Refused) as refused:
        served.update(actor=ACTOR, model=base, name="loud")
    assert (refused.value.code, refused.value.param) == ("name_taken", "name")
    served.update(actor=ACTOR, model=base, name="renamed")
    add(base, "base", path=str(files / "calm.gguf"))


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("base.gguf", "adapter_not_an_adapter"),
        ("nothing.gguf", "weights_missing"),
        ("with,comma.gguf", "invalid_value"),
        ("../x.gguf", "invalid_value"),
        ("text.gguf", "gguf_not_gguf"),
        ("folder", "adapter_not_an_adapter"),
    ],
)
def test_what_is_no_adapter_that_can_be_read_is_refused(base: Model, files: Path, path: str, code: str) -> None:
    (files / "text.gguf").write_bytes(b"no model" * 400)
    (files / "folder").mkdir(exist_ok=True)
    refused = refusal(base, path=f"{files}/{path}")
    assert (refused.code, refused.param) == (code, "path") if code != "invalid_value" else refused.code == code
    assert not Adapter.objects.exists()


def test_an_adapter_of_another_model_is_refused_with_both_figures(base: Model, files: Path, tmp_path: Path) -> None:
    other = make_tiny_gguf(
        tmp_path / "wide.gguf",
        text=" ".join(f"word{n}" for n in range(90)),
        loras=[(tmp_path / "wide-lora.gguf", "x y z")],
    )
    wide = a_model("wide", weights_path=str(other))
    refused = refusal(base, path=str(tmp_path / "wide-lora.gguf"))
    assert refused.code == "adapter_wrong_shape"
    assert "of width 128 and base has 64" in refused.message
    add(wide, path=str(tmp_path / "wide-lora.gguf"))


def test_bounds_of_the_scale_and_of_the_number(base: Model, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loud = str(files / "loud.gguf")
    for scale in (0.0, -1.0, 11.0, float("nan")):
        assert refusal(base, path=loud, scale=scale).code == "invalid_value"
    assert refusal(base).code == refusal(base, path=loud, repository="org/x").code == "invalid_value"
    monkeypatch.setattr(adapters, "MOST", 1)
    add(base, path=loud)
    assert refusal(base, "calm", path=str(files / "calm.gguf")).code == "adapters_full"
    external = a_model("outside", weights_path="", provider=a_provider(), provider_model="x")
    assert refusal(external, path=loud).code == "model_is_external"


def test_vllm_reads_folders_and_takes_no_scale(tmp_path: Path, files: Path) -> None:
    model = a_model("deep", weights_path="/srv/deep", profile={"engine": "vllm", "memory": 1 << 30})
    assert refusal(model, path=str(files / "loud.gguf")).code == "adapter_wrong_format"
    folder = peft(tmp_path / "lora")
    assert refusal(model, path=str(folder), scale=0.5).code == "adapter_scale"
    row = add(model, path=str(folder))
    assert (row.facts["format"], row.facts["rank"]) == ("safetensors", 8)
    view = model_views()[0]
    assert [item.name for item in serve_of(view, view.profiles[0]).adapters] == ["loud"]
    profiles.add(actor=ACTOR, model=model, name="other", engine="llama.cpp", memory=1 << 30)
    view = model_views()[0]
    told = {item.engine: serve_of(view, item).adapters for item in view.profiles}
    assert told["llama.cpp"] == ()
    assert len(told["vllm"]) == 1


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_folder_with_a_pipe_in_place_of_a_file_is_refused_and_nobody_waits_for_it(tmp_path: Path, name: str) -> None:
    model = a_model("deep", weights_path="/srv/deep", profile={"engine": "vllm", "memory": 1 << 30})
    folder = peft(tmp_path / "lora")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    refused = refusal(model, path=str(folder))
    assert (refused.code, f"has no {name} that can be read" in refused.message) == ("adapter_not_an_adapter", True)


def test_an_adapter_of_the_registry_is_a_version_that_the_cluster_fetches(
    base: Model, files: Path, stocked_hub: Hub
) -> None:
    loud, calm = (files / "loud.gguf").read_bytes(), (files / "calm.gguf").read_bytes()
    repo = stocked_hub.add(Repo("org/voices", base_model="org/tiny", relation="adapter"))
    repo.commit({"loud.gguf": loud, "sub/calm.gguf": calm, "README.md": b"#"})
    refused = refusal(base, repository="org/voices")
    assert refused.code == "adapter_file_needed"
    assert "loud.gguf, sub/calm.gguf" in refused.message
    assert refusal(base, repository="org/voices", file="x.gguf").code == "file_not_in_repository"
    assert refusal(base, "base", repository="org/voices", file="loud.gguf").code == "name_taken"
    assert refusal(base, repository="org/tiny-GGUF", file="tiny-F16.gguf").code == "adapter_not_an_adapter"
    assert refusal(base, repository="org/broken").code == "gguf_not_gguf"
    assert refusal(base, repository="org/words").code == "repository_has_no_adapter"
    stocked_hub.add(Repo("org/comma")).commit({"loud,calm.gguf": loud})
    comma = refusal(base, repository="org/comma")
    assert (comma.code, "loud,calm.gguf has a comma" in comma.message) == ("invalid_value", True)
    assert not Version.objects.exists()
    row = add(base, "calm", repository="org/voices", file="calm.gguf")
    assert row.version is not None
    assert (row.path, row.version.first, row.version.size) == ("", "sub/calm.gguf", len(calm))
    assert (row.version.repository, row.version.commit) == ("org/voices", repo.head)
    view = model_views()[0]
    weights = serve_of(view, view.profiles[0]).adapters[0].weights
    assert (weights.version, weights.path, weights.name) == (
        row.version_id,
        "sub/calm.gguf",
        f"{row.version_id}/sub/calm.gguf",
    )
    with pytest.raises(Refused) as held:
        versions.remove(actor=ACTOR, version=row.version)
    assert held.value.code == "still_in_use"
    assert "adapters" in held.value.message
    adapters.remove(actor=ACTOR, adapter=row)
    versions.remove(actor=ACTOR, version=row.version)


def test_a_repository_of_a_model_is_no_repository_of_an_adapter(base: Model, files: Path, stocked_hub: Hub) -> None:
    """1. with one file; 2. with several, of which nobody is to name one; 3. one that holds adapters beside a model is asked which."""
    whole = (files / "base.gguf").read_bytes()
    stocked_hub.add(Repo("org/one-GGUF")).commit({"m-Q4_K_M.gguf": whole})
    stocked_hub.add(Repo("org/small-GGUF")).commit({"m-Q4_K_M.gguf": whole, "m-Q8_0.gguf": whole})
    lora = (files / "calm.gguf").read_bytes()
    stocked_hub.add(Repo("org/both")).commit({"m-Q4_K_M.gguf": whole, "calm.gguf": lora})
    one = refusal(base, repository="org/one-GGUF")
    assert (one.code, "m-Q4_K_M.gguf of org/one-GGUF is a model's file, no adapter" in one.message) == (
        "adapter_not_an_adapter",
        True,
    )  # 1
    several = refusal(base, repository="org/small-GGUF")
    assert several.code == "repository_has_no_adapter"  # 2
    assert "is a model's file" in several.message
    assert "several adapters" not in several.message
    assert refusal(base, repository="org/both").code == "adapter_file_needed"  # 3
    assert add(base, repository="org/both", file="calm.gguf").facts["architecture"] == "llama"


def test_a_folder_of_the_registry_is_read_too(tmp_path: Path, stocked_hub: Hub) -> None:
    folder = peft(tmp_path / "lora")
    held = {item.name: item.read_bytes() for item in folder.iterdir()}
    stocked_hub.add(Repo("org/peft", base_model="org/tiny", relation="adapter")).commit({**held, "README.md": b"#"})
    model = a_model("deep", weights_path="/srv/deep", profile={"engine": "vllm", "memory": 1 << 30})
    row = add(model, repository="org/peft")
    assert row.version is not None
    assert (row.version.first, row.version.format) == ("", "safetensors")
    assert {item["path"] for item in row.version.manifest["files"]} == set(held)
    assert refusal(a_model("small"), "other", repository="org/peft").code == "adapter_wrong_format"


def test_all_models_are_read_with_their_adapters_in_three_queries(base: Model, files: Path) -> None:
    for name in ("loud", "calm"):
        add(base, name, path=str(files / f"{name}.gguf"))
    a_model("other")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        views = model_views()
    assert [len(view.adapters) for view in views] == [2, 0]
    assert len(queries) == 3


def test_adapters_go_with_their_model(base: Model, files: Path) -> None:
    add(base, path=str(files / "loud.gguf"))
    served.remove(actor=ACTOR, model=base)
    assert not Adapter.objects.exists()


def test_other_weights_must_fit_the_adapters_too(base: Model, files: Path, tmp_path: Path) -> None:
    add(base, path=str(files / "loud.gguf"))
    wide = make_tiny_gguf(tmp_path / "wide.gguf", text=" ".join(f"word{n}" for n in range(90)))
    with pytest.raises(Refused) as refused:
        served.update(actor=ACTOR, model=base, weights_path=str(wide))
    assert "Its adapter loud was made for a model of width 64 and base has 128" in refused.value.message
    assert "remove that adapter first" in refused.value.message
    adapters.remove(actor=ACTOR, adapter=Adapter.objects.get())
    served.update(actor=ACTOR, model=base, weights_path=str(wide))


@pytest.mark.django_db(transaction=True)
def test_of_a_model_and_an_adapter_that_are_named_at_once_one_gets_the_name(files: Path) -> None:
    base = a_model("base", weights_path=str(files / "base.gguf"))
    for number in range(4):
        name = f"twice-{number}"

        def adds(name: str = name) -> None:
            add(base, name, path=str(files / "loud.gguf"))

        def makes(name: str = name) -> None:
            a_model(name)

        def renames(name: str = name) -> None:
            served.update(actor=ACTOR, model=Model.objects.get(pk=base.pk), name=name)

        errors = at_once(adds, makes, renames)
        assert [getattr(error, "code", repr(error)) for error in errors] == ["name_taken"] * 2
        named = [*Model.objects.filter(name=name), *Adapter.objects.filter(name=name)]
        assert len(named) == 1
