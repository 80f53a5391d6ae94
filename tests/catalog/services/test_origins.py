"""catalog.services.origins: given by hand, traced, and asked, against the small hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog.models import Adapter, Event, Model, Origin
from catalog.services import adapters, mirror, origins, tracing
from llmgw_site.lib.errors import Refused
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import ACTOR, a_model, a_provider, a_version
from tests.tiny import make_tiny_gguf, tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture
def small() -> bytes:
    return tiny_gguf().read_bytes()


def lying(folder: Path, name: str, data: bytes, model: str = "m") -> Model:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return a_model(model, weights_path=str(folder / name))


def refused(model: Model, how: str, **words: str) -> Refused:
    with pytest.raises(Refused) as found:
        getattr(tracing if how == "trace" else origins, how)(actor=ACTOR, of=model, **words)
    return found.value


def test_an_origin_is_given_by_hand_at_a_shortened_commit(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    repo = stocked_hub.add(Repo("org/given"))
    old = repo.commit({"q/m-Q8_0.gguf": small})
    repo.commit({"q/m-Q8_0.gguf": small + b"x"})
    model = lying(tmp_path, "m-Q8_0.gguf", small)
    found = origins.give(actor=ACTOR, of=model, repository="org/given", commit=old[:10])
    assert (found.repository, found.commit, found.given_by) == ("org/given", old, ACTOR)
    assert [file.path for file in found.manifest.files] == ["q/m-Q8_0.gguf"]
    assert found.manifest.files[0].sha256
    assert Event.objects.filter(kind="model_origin", subject_id=model.pk).exists()
    assert origins.look(model).files == ("q/m-Q8_0.gguf",)


@pytest.mark.parametrize(("how", "words"), [("give", {"repository": "org/given"}), ("trace", {})])
def test_what_was_found_at_the_newest_commit_was_asked_by_that(
    stocked_hub: Hub, small: bytes, tmp_path: Path, how: str, words: dict[str, str]
) -> None:
    """At a commit that somebody names there may be something newer; of an adapter, what was changed before counts no more."""
    repo = stocked_hub.add(Repo("org/given"))
    old = repo.commit({"given-Q8_0.gguf": small})
    model = lying(tmp_path, "given-Q8_0.gguf", small)
    getattr(tracing if how == "trace" else origins, how)(actor=ACTOR, of=model, **words)
    (row,) = origins.standings()
    assert (row["checked_at"] is not None, row["newest"], row["changed"]) == (True, old, [])
    origins.give(actor=ACTOR, of=model, repository="org/given", commit=old)
    (row,) = origins.standings()
    assert (row["checked_at"], row["newest"]) == (None, "")
    base, lora = tmp_path / "base.gguf", tmp_path / "calm.gguf"
    make_tiny_gguf(base, loras=[(lora, "Something calm.")])
    head = stocked_hub.add(Repo("org/calm")).commit({"calm.gguf": lora.read_bytes()})
    adapter = adapters.add(actor=ACTOR, model=a_model("b", weights_path=str(base)), name="calm", path=str(lora))
    Adapter.objects.update(changed=["calm.gguf"], newest="0" * 40)
    origins.give(actor=ACTOR, of=adapter, repository="org/calm")
    adapter.refresh_from_db()
    assert (adapter.checked_at is not None, adapter.newest, adapter.changed) == (True, head, [])


@pytest.mark.parametrize(
    ("repository", "code"),
    [("org/tiny-GGUF", "origin_differs"), ("org/nothing", "repository_unknown"), ("nonsense", "repository_name_bad")],
)
def test_a_repository_that_is_not_it_is_refused_and_nothing_is_kept(
    stocked_hub: Hub, small: bytes, tmp_path: Path, repository: str, code: str
) -> None:
    model = lying(tmp_path, "m-Q8_0.gguf", small)
    assert refused(model, "give", repository=repository).code == code
    assert not Origin.objects.exists()


def test_tracing_takes_the_most_downloaded_repository_that_has_the_file_at_its_size(
    stocked_hub: Hub, small: bytes, tmp_path: Path
) -> None:
    data = small + bytes(17)
    for name, downloads, content in (
        ("a/wonder-GGUF", 900, small),
        ("b/wonder-GGUF", 500, data),
        ("c/wonder", 5, data),
    ):
        stocked_hub.add(Repo(name, downloads=downloads)).commit({"wonder-Q8_0.gguf": content})
    model = lying(tmp_path, "wonder-Q8_0.gguf", data)
    found = tracing.trace(actor=ACTOR, of=model)
    assert (found.repository, found.given_by) == ("b/wonder-GGUF", "")
    assert origins.standings()[0]["repository"] == "b/wonder-GGUF"


def test_an_origin_that_is_given_while_it_is_looked_for_stands(
    stocked_hub: Hub, small: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, downloads in (("a/wonder-GGUF", 900), ("b/wonder-GGUF", 5)):
        stocked_hub.add(Repo(name, downloads=downloads)).commit({"wonder-Q8_0.gguf": small})
    model = lying(tmp_path, "wonder-Q8_0.gguf", small)
    search = tracing._search

    def meanwhile(*args: Any) -> Any:
        found = search(*args)
        origins.give(actor=ACTOR, of=model, repository="b/wonder-GGUF")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(tracing, "_search", meanwhile)
        found = tracing.trace(actor=ACTOR, of=model)
    assert (found.repository, found.given_by) == ("b/wonder-GGUF", ACTOR)
    assert tracing.trace(actor=ACTOR, of=model).repository == "a/wonder-GGUF"  # who asks for it anew means it


def test_tracing_takes_the_commit_that_the_folder_is_named_after(
    stocked_hub: Hub, small: bytes, tmp_path: Path
) -> None:
    repo = stocked_hub.add(Repo("own/named"))
    old = repo.commit({"odd.gguf": small})
    repo.commit({"odd.gguf": small + b"newer"})
    folder = tmp_path / "models--own--named" / "snapshots" / old
    found = tracing.trace(actor=ACTOR, of=lying(folder, "odd.gguf", small))
    assert (found.repository, found.commit) == ("own/named", old)


def test_the_parts_of_a_set_have_to_be_there_all(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    names = [f"parted-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    stocked_hub.add(Repo("x/parted", downloads=9)).commit({names[0]: small})
    stocked_hub.add(Repo("y/parted", downloads=1)).commit({names[0]: small, names[1]: small + b"2"})
    (tmp_path / names[1]).write_bytes(small + b"2")
    (tmp_path / names[0]).write_bytes(small)
    model = _plain(str(tmp_path / names[0]), 2 * len(small) + 1)
    assert tracing.trace(actor=ACTOR, of=model).repository == "y/parted"


def _plain(path: str, size: int) -> Model:
    model: Model = Model.objects.create(name="m", weights_path=path, weights_size=size)
    return model


def test_what_is_nowhere_is_refused_with_what_was_looked_at(stocked_hub: Hub, small: bytes, tmp_path: Path) -> None:
    stocked_hub.add(Repo("a/lonely-GGUF")).commit({"lonely-Q8_0.gguf": small + b"another"})
    found = refused(lying(tmp_path, "lonely-Q8_0.gguf", small), "trace")
    assert found.code == "origin_not_found"
    assert "a/lonely-GGUF" in found.message
    assert "--repository" in found.message


def test_files_of_unknown_size_prove_nothing(stocked_hub: Hub) -> None:
    model = _plain("/elsewhere/m-Q8_0.gguf", 0)
    Model.objects.filter(pk=model.pk).update(weights_size=None)
    model.refresh_from_db()
    for how, words in (("trace", {}), ("give", {"repository": "org/tiny-GGUF"})):
        assert refused(model, how, **words).code == "origin_unproven"


def test_who_was_fetched_has_its_origin_and_who_is_elsewhere_has_none(stocked_hub: Hub) -> None:
    version = mirror.add(actor=ACTOR, source=["org/tiny-GGUF"], quantization="F16", projector="none")
    model = a_model("fetched", version=version)
    assert refused(model, "give", repository="org/tiny").code == "origin_known"
    external = a_model("external", provider=a_provider(), provider_model="x", weights_path="")
    assert refused(external, "trace").code == "model_is_external"
    with pytest.raises(Refused, match="llmgw model origin"):
        origins.look(_plain("/elsewhere/x.gguf", 5))


def test_a_registry_that_is_away_is_noted_and_asked_no_more_in_that_round(stocked_hub: Hub) -> None:
    for name in ("a", "b"):
        a_model(name, version=a_version(f"acme/{name}"))
    stocked_hub.faults.rate_limits = 2
    assert origins.check_all(older_than=0) == ()
    rows = {row.model.name: row.code for row in Origin.objects.all()}
    assert rows == {"a": "registry_limited"}


def test_the_mirror_takes_one_model_only_and_no_path(stocked_hub: Hub) -> None:
    for words, code in (
        ({"source": ["org/tiny-GGUF"]}, "several_models"),
        ({"source": ["/a/b.gguf"]}, "source_not_fetched"),
        ({"source": ["org/nothing"]}, "repository_unknown"),
    ):
        with pytest.raises(Refused) as found:
            mirror.add(actor=ACTOR, **words)  # type: ignore[arg-type]
        assert found.value.code == code
