"""catalog.services.tracing: origins are looked for by themselves, one at a time, and what came of it is kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog import selectors as catalog
from catalog.domain.manifests import ManifestFile
from catalog.models import Event, Model, Origin, Version, VersionOrigin
from catalog.services import adapter_updates, adapters, origins, served, tracing
from cluster.selectors import database_now
from llmgw_site.lib.errors import Refused
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import ACTOR, a_model, a_provider, a_version
from tests.tiny import make_tiny_gguf, tiny_gguf
from workers.tasks import origins as asked

pytestmark = pytest.mark.django_db
DAY = 24 * 3600.0


@pytest.fixture
def small() -> bytes:
    return tiny_gguf().read_bytes()


def lying(folder: Path, name: str, data: bytes, model: str, **more: Any) -> Model:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return a_model(model, weights_path=str(folder / name), **more)


def looked(after: float = 0.0) -> tuple[str, str | None] | None:
    found = tracing.trace_next(lambda model: None, now=database_now() + after)
    return (found[0].name, found[1].repository if found[1] else None) if found else None


def standing(name: str) -> dict[str, Any]:
    return next(row for row in origins.standings() if row["name"] == name)


def test_each_model_has_its_turn_and_then_its_updates_are_seen(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    repo = stocked_hub.add(Repo("b/wonder-GGUF", downloads=500))
    repo.commit({"wonder-Q8_0.gguf": small})
    found = lying(tmp_path, "wonder-Q8_0.gguf", small, "found")
    lying(tmp_path, "nowhere-Q8_0.gguf", small, "lost")
    a_model("fetched", version=a_version())
    a_model("external", provider=a_provider(), provider_model="x", weights_path="")
    lying(tmp_path, "off-Q8_0.gguf", small, "off", enabled=False)
    first, second = looked(), looked(after=100.0)
    assert {first, second} == {("found", "b/wonder-GGUF"), ("lost", None)}
    assert looked(after=200.0) is None, "nobody is left"
    assert (standing("found")["trace"], standing("lost")["trace"]) == ("traced", "not_found")
    assert "llmgw model origin lost" in standing("lost")["trace_message"]
    assert Event.objects.get(kind="model_origin").subject_id == found.pk
    assert len([item for item in stocked_hub.seen if "/resolve/" in item["path"]]) == 0, "nothing is fetched"
    repo.commit({"wonder-Q8_0.gguf": small + b"x"})
    assert origins.check_all(older_than=0) == ("found",)
    assert looked(after=8 * DAY) == ("lost", None)


def test_two_searches_are_apart_and_of_two_controllers_one_looks(
    stocked_hub: Hub, small: bytes, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        lying(tmp_path, f"nowhere-{name}-Q8_0.gguf", small, name)
    assert looked() is not None
    assert looked() is None
    row = Origin.objects.get()
    other = Model.objects.exclude(pk=row.model_id).get()
    assert tracing._claimed(other, None, 1e9)
    assert not tracing._claimed(other, None, 1e9)
    assert tracing._claimed(row.model, row, 2e9)
    assert not tracing._claimed(row.model, row, 3e9), "somebody else was faster"


def test_files_of_the_same_name_and_size_that_differ_leave_it_open(
    stocked_hub: Hub, small: bytes, tmp_path: Path
) -> None:
    other = small[:-1] + bytes([small[-1] ^ 1])
    for name, downloads, content in (("a/tuned", 900, other), ("b/tuned", 500, small)):
        stocked_hub.add(Repo(name, downloads=downloads)).commit({"tuned-Q8_0.gguf": content})
    model = lying(tmp_path, "tuned-Q8_0.gguf", small, "m")
    assert looked() == ("m", None)
    assert standing("m")["trace"] == "ambiguous"
    assert "a/tuned, b/tuned" in standing("m")["trace_message"]
    origins.give(actor=ACTOR, of=model, repository="b/tuned")
    assert (standing("m")["trace"], standing("m")["repository"]) == ("", "b/tuned")


def test_a_checksum_that_is_known_decides(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    other = small[:-1] + bytes([small[-1] ^ 1])
    for name, downloads, content in (("a/tuned", 900, other), ("b/tuned", 500, small)):
        stocked_hub.add(Repo(name, downloads=downloads)).commit({"tuned-Q8_0.gguf": content})
    sha256 = hashlib.sha256(small).hexdigest()
    files = [ManifestFile(path="tuned-Q8_0.gguf", size=len(small), sha256=sha256, url="https://x.test/tuned-Q8_0.gguf")]
    model = a_model("m", version=a_version("", registry="", commit="", files=files, first="tuned-Q8_0.gguf"))
    with pytest.raises(Refused, match="another SHA-256"):
        origins.give(actor=ACTOR, of=model, repository="a/tuned")
    assert looked() == ("m", "b/tuned")


def test_a_version_that_nothing_needs_and_an_adapter_on_nodes_have_their_turn(
    stocked_hub: Hub, small: bytes, tmp_path: Path
) -> None:
    stocked_hub.add(Repo("b/wonder-GGUF")).commit({"wonder-Q8_0.gguf": small})
    base, lora = tmp_path / "base.gguf", tmp_path / "calmly.gguf"
    make_tiny_gguf(base, loras=[(lora, "Something calm.")])
    stocked_hub.add(Repo("c/calmly-LoRA")).commit({"calmly.gguf": lora.read_bytes()})
    sha256 = hashlib.sha256(small).hexdigest()
    files = [
        ManifestFile(path="wonder-Q8_0.gguf", size=len(small), sha256=sha256, url="https://x.test/wonder-Q8_0.gguf")
    ]
    version = a_version("", registry="", commit="", files=files, first="wonder-Q8_0.gguf")
    model = a_model("off", weights_path=str(base))
    adapter = adapters.add(actor=ACTOR, model=model, name="calm", path=str(lora))
    served.disable(actor=ACTOR, model=model)
    assert looked() == (version.name, "b/wonder-GGUF")
    served.enable(actor=ACTOR, model=model)
    found = {looked(after=100.0), looked(after=200.0)}
    assert found == {("calm", "c/calmly-LoRA"), ("off", None)}
    assert looked(after=300.0) is None
    assert {row.subject_kind for row in Event.objects.filter(kind__endswith="_origin")} == {"version", "adapter"}
    made = a_model("made", version=version, profile={"memory": 1 << 28})
    assert (standing("made")["repository"], standing("made")["trace"]) == ("b/wonder-GGUF", "traced")
    assert origins.look(made).files == ()
    assert looked(after=400.0) is None, "what its version was found to come from is its origin"
    adapter = catalog.adapters().get(pk=adapter.pk)
    assert not adapter_updates.look(adapter)
    with pytest.raises(Refused, match="is not where these files come from"):
        origins.give(actor=ACTOR, of=adapter, repository="b/wonder-GGUF")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("there", [True, False])
def test_what_is_removed_while_it_is_looked_for_is_no_failure(
    stocked_hub: Hub, small: bytes, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        stocked_hub.add(Repo("b/wonder-GGUF")).commit({"wonder-Q8_0.gguf": small})
    sha256 = hashlib.sha256(small).hexdigest()
    files = [
        ManifestFile(path="wonder-Q8_0.gguf", size=len(small), sha256=sha256, url="https://x.test/wonder-Q8_0.gguf")
    ]
    version = a_version("", registry="", commit="", files=files, first="wonder-Q8_0.gguf")
    search = tracing._search

    def removed_meanwhile(*asked: Any) -> Any:
        Version.objects.all().delete()
        return search(*asked)

    monkeypatch.setattr(tracing, "_search", removed_meanwhile)
    assert looked() == (version.name, None)
    assert not VersionOrigin.objects.exists()
    assert not Event.objects.filter(kind="version_origin").exists()


def test_where_the_registry_is_away_nobody_is_looked_for_until_later(
    stocked_hub: Hub, small: bytes, tmp_path: Path, settings: Any
) -> None:
    for name in ("a", "b"):
        lying(tmp_path, f"x-{name}-Q8_0.gguf", small, name)
    there = settings.CONFIG
    settings.CONFIG = replace(there, registry="http://127.0.0.1:9")
    first = looked()
    assert first is not None
    assert standing(first[0])["trace"] == "failed"
    assert looked(after=600.0) is None
    settings.CONFIG = there
    again = looked(after=3700.0)
    assert again is not None
    assert again[0] != first[0]


def test_other_weights_have_another_origin(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    stocked_hub.add(Repo("b/wonder-GGUF")).commit({"wonder-Q8_0.gguf": small})
    model = lying(tmp_path, "wonder-Q8_0.gguf", small, "m")
    assert looked() == ("m", "b/wonder-GGUF")
    (tmp_path / "other.gguf").write_bytes(small)
    served.update(actor=ACTOR, model=model, replicas=1)
    assert Origin.objects.exists()
    served.update(actor=ACTOR, model=model, weights_path=str(tmp_path / "other.gguf"))
    assert not Origin.objects.exists()


def test_the_beat_traces_unless_updates_are_not_asked_for(
    stocked_hub: Hub, small: bytes, tmp_path: Path, settings: Any
) -> None:
    stocked_hub.add(Repo("b/wonder-GGUF")).commit({"wonder-Q8_0.gguf": small})
    lying(tmp_path, "wonder-Q8_0.gguf", small, "m")
    there = settings.CONFIG
    settings.CONFIG = replace(there, update_check=0.0)
    asked.trace()
    assert not Origin.objects.exists()
    settings.CONFIG = there
    asked.trace()
    assert Origin.objects.get().repository == "b/wonder-GGUF"
