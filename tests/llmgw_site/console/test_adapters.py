"""Adapters on a model's card."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.test import Client

from catalog.models import Adapter, Model
from catalog.services import adapters, served
from cluster.models import Replica
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.llmgw_site.console.conftest import Cluster, Person
from tests.tiny import make_tiny_gguf

SEE = ("catalog.view_model", "cluster.view_replica", "cluster.view_node")


def words(content: bytes) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html.unescape(content.decode())).split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tiny_gguf(tmp_path / "base.gguf", loras=[(tmp_path / "loud.gguf", "Something loud.")])
    return tmp_path


@pytest.fixture
def model(cluster: Cluster, folder: Path) -> Model:
    row = cluster.model("chat", in_flight=1)
    return served.update(actor="t", model=row, weights_path=str(folder / "base.gguf"))


def test_an_adapter_is_added_shown_and_removed(admin: Client, model: Model, folder: Path) -> None:
    card = f"/admin/model/{model.pk}"
    assert "No adapters" in words(admin.get(card).content)
    path = str(folder / "loud.gguf")
    added = admin.post(f"{card}/adapter", {"source": path, "scale": "0,5"}, follow=True)
    assert "loud is loaded by every replica of chat now" in words(added.content)
    row = Adapter.objects.get()
    assert (row.name, row.scale, row.path) == ("loud", 0.5, path)
    text = words(added.content)
    assert path in text
    assert "0.5" in text
    assert "no replica yet" in text
    told = {"name": "loud", "weights": {"path": path, "version": ""}}
    serve = Replica.objects.filter(model=model).first().serve  # type: ignore[union-attr]
    Replica.objects.update(serve={**serve, "adapters": [told]}, state="ready")
    assert "1 of 1 ready" in words(admin.get(f"{card}?parts=1").content)
    gone = admin.post(f"{card}/adapter/{row.pk}/remove", follow=True)
    assert "loud is removed" in words(gone.content)
    assert not Adapter.objects.exists()
    assert admin.post(f"{card}/adapter/{row.pk}/remove").status_code == 404


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({}, "Write the path of a file on the nodes, or OWNER/REPOSITORY"),
        ({"source": "BASE"}, "is a model's file, no adapter"),
        ({"source": "/not/there.gguf"}, "There is no file /not/there.gguf on this machine"),
        ({"source": "LOUD", "scale": "high"}, "A number such as 0.8 is needed"),
        ({"source": "LOUD", "scale": "99"}, "Ensure this value is less than"),
        ({"source": "LOUD", "name": "chat"}, "There is a model named chat"),
        ({"source": "LOUD", "name": "a\x00b"}, "A name begins with a letter or digit"),
    ],
)
def test_what_is_refused_stands_in_the_form_as_it_was_filled_in(
    admin: Client, model: Model, folder: Path, form: dict[str, str], why: str
) -> None:
    places = {"BASE": str(folder / "base.gguf"), "LOUD": str(folder / "loud.gguf")}
    given = {name: places.get(value, value) for name, value in form.items()}
    answer = admin.post(f"/admin/model/{model.pk}/adapter", given)
    assert answer.status_code == 409
    assert why in words(answer.content)
    for value in given.values():
        if "\x00" not in value:
            assert f'value="{value}"' in answer.content.decode()
    assert b"autofocus" in answer.content
    assert not Adapter.objects.exists()


def test_who_may_only_see_gets_no_forms(person: Person, model: Model) -> None:
    reader = person(*SEE)
    page = reader.get(f"/admin/model/{model.pk}").content
    assert b"Add an adapter" not in page
    assert b"No adapters" in page
    assert reader.post(f"/admin/model/{model.pk}/adapter", {"source": "/x"}).status_code == 403
    assert reader.post(f"/admin/model/{model.pk}/adapter/ada_x/remove").status_code == 403
    assert b"No adapters" in person(*SEE, "catalog.change_model", name="other").get(f"/admin/model/{model.pk}").content


def test_adapters_of_a_base_model_are_found_and_held_ones_are_marked(
    admin: Client, model: Model, folder: Path, stocked_hub: Hub
) -> None:
    repo = stocked_hub.add(Repo("voices/loud", base_model="org/tiny", relation="adapter"))
    repo.commit({"lora.gguf": (folder / "loud.gguf").read_bytes()})
    page = "/admin/registry?adapters_of=org/tiny"
    assert "voices/loud" in words(admin.get(page).content)
    assert "held" not in words(admin.get(page).content)
    added = admin.post(f"/admin/model/{model.pk}/adapter", {"source": "voices/loud"}, follow=True)
    assert f"voices/loud {repo.head[:8]}" in words(added.content)
    assert "adapter held" in words(admin.get(page).content)
    assert "org/tiny (its adapters)" in re.sub(
        r"\s+([)])", r"\1", words(admin.get("/admin/registry/org/tiny-GGUF").content)
    ).replace("( ", "(")


def test_an_adapter_can_be_chosen_for_a_chat(admin: Client, model: Model, folder: Path) -> None:
    adapters.add(actor="t", model=model, name="loud", path=str(folder / "loud.gguf"))
    found = admin.get("/admin/chat/models").json()["models"]
    assert [item["name"] for item in found] == ["chat", "loud"]
    assert found[1]["facts"].startswith("adapter of chat")


def test_a_newer_file_is_asked_for_and_fetched_by_the_buttons(
    admin: Client, model: Model, folder: Path, stocked_hub: Hub
) -> None:
    repo = stocked_hub.add(Repo("org/loud-LoRA"))
    repo.commit({"loud.gguf": (folder / "loud.gguf").read_bytes()})
    row = adapters.add(actor="t", model=model, name="loud", repository="org/loud-LoRA")
    card = f"/admin/model/{model.pk}"
    assert "loud is up to date" in words(admin.post(f"{card}/adapter/{row.pk}/check", follow=True).content)
    repo.commit({"loud.gguf": (folder / "loud.gguf").read_bytes() + b"x"})
    text = words(admin.post(f"{card}/adapter/{row.pk}/check", follow=True).content)
    assert "loud has a newer file" in text
    assert "newer file" in words(admin.get(f"{card}?parts=1").content)
    assert "Roll back" not in text
    assert "no earlier version" in words(admin.post(f"{card}/adapter/{row.pk}/rollback", follow=True).content)
    assert "Ask whether its file changed" in words(admin.post(f"{card}/adapter/{row.pk}/update", follow=True).content)
    assert "is open already" in words(admin.post(f"{card}/adapter/{row.pk}/update", follow=True).content)
    assert admin.post(f"{card}/adapter/{row.pk}/dance").status_code == 404
    Adapter.objects.update(previous=row.version)
    assert "Roll back" in words(admin.get(card).content)


def test_where_a_file_on_the_nodes_comes_from_is_told_by_a_form(
    admin: Client, model: Model, folder: Path, stocked_hub: Hub
) -> None:
    stocked_hub.add(Repo("org/loud-LoRA")).commit({"loud.gguf": (folder / "loud.gguf").read_bytes()})
    row = adapters.add(actor="t", model=model, name="loud", path=str(folder / "loud.gguf"))
    card = f"/admin/model/{model.pk}"
    path = f"{card}/adapter/{row.pk}/origin"
    assert f'data-action="{path}"' in admin.get(card).content.decode()
    answer = admin.post(path, {"repository": "org/broken", "commit": ""})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert re.search(r'<dialog[^>]* id="origin"[^>]* open>', page)
    assert f'action="{path}"' in page
    assert page.count('value="org/broken"') == 1, "in its own form, and not in the model's"
    told = admin.post(path, {"repository": "org/loud-LoRA", "commit": ""}, follow=True)
    assert "loud comes from org/loud-LoRA" in words(told.content)
    assert f'data-action="{path}"' not in told.content.decode()
    assert f"{card}/adapter/{row.pk}/update" in told.content.decode()
    assert admin.get(path).headers["Location"] == card
