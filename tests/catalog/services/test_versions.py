"""Versions of weights, and models that have one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.domain.cards import RepoCard
from catalog.domain.facts import ModelFacts
from catalog.domain.manifests import ManifestFile, manifest_from_dict
from catalog.domain.repository import RepoFile, file_sets
from catalog.models import Event, Version
from catalog.selectors import model_views
from catalog.services import served, versions
from catalog.services.registry import Seen
from cluster.selectors import digest_of, serve_of
from cluster.wire import Serve, Weights
from llmgw_site.lib.errors import Refused
from tests.rows import ACTOR, a_model, a_version

pytestmark = pytest.mark.django_db

GGUF = RepoFile(path="m-Q8_0.gguf", size=70, sha256="a" * 64)
PROJECTOR = RepoFile(path="mmproj-m-F16.gguf", size=9, sha256="b" * 64)
PARTS = [RepoFile(path=f"model-0000{number}-of-00002.safetensors", size=50, sha256="c" * 64) for number in (1, 2)]
CONFIG = RepoFile(path="config.json", size=5, blob="d" * 40)
INDEX = RepoFile(path="model.safetensors.index.json", size=3, blob="e" * 40)


def seen(*files: RepoFile) -> Seen:
    card = RepoCard(id="acme/m", commit="f" * 40, files=files)
    return Seen(card=card, sets=file_sets(files), projectors=(PROJECTOR,))


def made(*files: RepoFile, projector: RepoFile | None = None) -> Version:
    found = seen(*files)
    return versions.make(found, found.sets[0], ModelFacts(kind="model", architecture="llama"), projector, actor=ACTOR)


def test_a_look_at_a_repository_makes_a_version_of_a_file_and_its_projector() -> None:
    row = made(GGUF, projector=PROJECTOR)
    assert (row.repository, row.commit, row.format, row.quantization) == ("acme/m", "f" * 40, "gguf", "Q8_0")
    assert (row.first, row.projector, row.size) == ("m-Q8_0.gguf", "mmproj-m-F16.gguf", 79)
    assert row.facts["bytes"] == 79
    manifest = manifest_from_dict(Version.objects.get().manifest)
    assert manifest.id == row.id
    assert [file.sha256[0] for file in manifest.files] == ["a", "b"]
    assert "manifest" not in (Event.objects.get().after or {})


def test_a_folder_has_no_first_file_and_the_size_of_its_parts_as_its_weights() -> None:
    row = made(*PARTS, CONFIG, INDEX)
    assert (row.first, row.format, row.size, row.facts["bytes"]) == ("", "safetensors", 108, 100)


def test_the_same_files_are_one_version_however_often_they_are_asked_for() -> None:
    first = made(GGUF)
    assert made(GGUF).id == first.id
    assert made(replace(GGUF, sha256="b" * 64)).id != first.id
    assert made(GGUF, projector=PROJECTOR).id != first.id
    assert Version.objects.count() == 3


def test_a_file_without_a_checksum_makes_no_version() -> None:
    with pytest.raises(Refused) as refused:
        made(replace(GGUF, sha256=""))
    assert refused.value.code == "weights_unchecked"
    assert "m-Q8_0.gguf" in refused.value.message


def test_a_version_goes_when_nothing_needs_it_any_more() -> None:
    old, new = a_version(), a_version(commit="d" * 40)
    model = a_model(version=old)
    served.update(actor=ACTOR, model=model, version=new, previous=old)
    for row, word in ((new, "tiny:"), (old, "rollback")):
        with pytest.raises(Refused) as refused:
            versions.remove(actor=ACTOR, version=row)
        assert refused.value.code == "still_in_use"
        assert word in refused.value.message
    served.update(actor=ACTOR, model=model, previous=None)
    versions.remove(actor=ACTOR, version=old)
    assert list(Version.objects.all()) == [new]
    with pytest.raises(Refused) as refused:
        versions.manifest_of(old.id)
    assert refused.value.code == "version_unknown"


def test_a_model_with_a_version_has_its_shape_and_size_and_no_path() -> None:
    version = a_version(facts=ModelFacts(kind="model", architecture="llama", layers=3), projector="p.gguf")
    model = a_model(version=version)
    assert (model.weights_path, model.weights_size, model.facts["layers"]) == ("", version.size, 3)
    view = model_views()[0]
    assert (view.version_id, view.first, view.projector) == (version.id, version.first, "p.gguf")
    serve = serve_of(view, view.profiles[0])
    assert serve.weights == Weights(path=version.first, size=version.size, version=version.id)
    assert serve.projector == "p.gguf"


def test_an_update_brings_the_shape_of_the_new_version_and_another_digest() -> None:
    model = a_model(version=a_version())
    before = model_views()[0]
    served.update(actor=ACTOR, model=model, version=a_version(commit="d" * 40, size=77))
    after = model_views()[0]
    assert after.weights_size == 77
    digests = {digest_of(serve_of(view, view.profiles[0]), view.profiles[0]) for view in (before, after)}
    assert len(digests) == 2


def test_what_has_no_version_goes_by_the_digest_that_it_always_had() -> None:
    a_model()
    profile = model_views()[0].profiles[0]
    old = Serve(engine="llama.cpp", model="tiny", weights=Weights(path="/m.gguf", size=5))
    assert digest_of(old, profile) == "e8c7c7791138f2a65a72ecaf9cd2de01be63ce7680d00839a642773dfdc9bbb2"
    assert digest_of(replace(old, projector="p.gguf"), profile) != digest_of(old, profile)


def test_a_model_has_a_path_or_a_version() -> None:
    with pytest.raises(Refused) as refused:
        a_model(version=a_version(), weights_path="/m.gguf")
    assert refused.value.param == "weights_path"
    model = a_model(version=a_version())
    served.update(actor=ACTOR, model=model, weights_path="/not/here/m.gguf")
    assert (model.version, model.previous, model.weights_size) == (None, None, None)
    served.update(actor=ACTOR, model=model, version=a_version())
    assert (model.weights_path, model.version_id) == ("", a_version().id)


def test_plain_addresses_make_a_version_without_a_registry() -> None:
    files = [ManifestFile(path="m.gguf", size=5, sha256="a" * 64, url="https://example.com/m.gguf")]
    row = a_version(registry="", repository="", commit="", files=files, first="m.gguf")
    assert str(row) == "m.gguf Q4_K_M"
