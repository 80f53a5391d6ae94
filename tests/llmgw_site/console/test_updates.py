"""The part of a model's card that is about its weights: where they come from, newer ones, the way back, what was measured."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client
from django.utils import timezone

from catalog.domain.manifests import ManifestFile
from catalog.models import Model
from catalog.services import mirror
from cluster.models import Job, Replica, Throughput
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.llmgw_site.console.conftest import Cluster, Person
from tests.rows import ACTOR, a_model, a_version
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db


def text_of(client: Client, model: Model) -> str:
    page = html.unescape(client.get(f"/admin/model/{model.pk}").content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def press(client: Client, model: Model, verb: str, **fields: str) -> str:
    answer = client.post(f"/admin/model/{model.pk}/weights/{verb}", fields, follow=True)
    return html.unescape(answer.content.decode())


def test_newer_files_are_asked_for_and_fetched_by_the_buttons(admin: Client, stocked_hub: Hub) -> None:
    small = tiny_gguf().read_bytes()
    repo = stocked_hub.add(Repo("org/moving"))
    repo.commit({"m-Q8_0.gguf": small})
    model = a_model("m", version=mirror.add(actor=ACTOR, source=["org/moving"]), profile={"memory": 1 << 28})
    assert "not asked yet" in text_of(admin, model)
    assert "m is up to date" in press(admin, model, "check")
    repo.commit({"m-Q8_0.gguf": small + b"x"})
    assert "1 file of m changed" in press(admin, model, "check")
    text = text_of(admin, model)
    assert "newer files" in text
    assert "m-Q8_0.gguf" in text
    assert "Ask whether its files changed" in press(admin, model, "update"), "the job's own page"
    assert "Under way" in text_of(admin, model)
    assert "is open already" in press(admin, model, "update")


def test_the_way_back_is_offered_where_there_is_one(admin: Client) -> None:
    model = a_model("m", version=a_version("acme/now"))
    assert "Roll back" not in text_of(admin, model)
    assert "no earlier version" in press(admin, model, "rollback")
    Model.objects.filter(pk=model.pk).update(previous=a_version("acme/before"))
    assert "Goes back to acme/before" in text_of(admin, model)
    press(admin, model, "rollback")
    assert Job.objects.get().kind == "rollback"


def test_an_origin_is_given_or_looked_for_on_the_card(admin: Client, stocked_hub: Hub, tmp_path: object) -> None:
    path = f"{tmp_path}/tiny-F16.gguf"
    with open(path, "wb") as file:
        file.write(tiny_gguf().read_bytes())
    model = a_model("m", weights_path=path)
    assert "origin unknown" in text_of(admin, model)
    assert "origin_differs" in press(admin, model, "origin", repository="org/broken")
    assert "comes from org/tiny-GGUF" in press(admin, model, "origin", repository="")
    assert "traced" in text_of(admin, model)


def test_what_was_typed_stays_and_the_address_of_a_form_leads_to_the_card(
    admin: Client, stocked_hub: Hub, tmp_path: object
) -> None:
    path = f"{tmp_path}/tiny-F16.gguf"
    with open(path, "wb") as file:
        file.write(tiny_gguf().read_bytes())
    model = a_model("m", weights_path=path)
    for repository, commit, at in (("org/broken", "", "repository"), ("org/tiny-GGUF", "0" * 12, "commit")):
        answer = admin.post(f"/admin/model/{model.pk}/weights/origin", {"repository": repository, "commit": commit})
        page = answer.content.decode()
        assert answer.status_code == 409
        assert f'name="repository" value="{repository}"' in page
        assert f'name="commit" value="{commit}"' in page
        assert re.findall(r'id="error-(\w+)"', page) == [at]
    assert admin.get(f"/admin/model/{model.pk}/weights/origin").headers["Location"] == f"/admin/model/{model.pk}"


def test_why_no_origin_was_found_stands_on_the_card_and_with_the_version(admin: Client, stocked_hub: Hub) -> None:
    files = [ManifestFile(path="lost.gguf", size=5, sha256="2" * 64, url="https://x.test/lost.gguf")]
    model = a_model("m", version=a_version("", registry="", commit="", files=files, first="lost.gguf"))
    assert "comes from" not in press(admin, model, "origin", repository="")
    text = text_of(admin, model)
    assert "origin not found" in text
    assert "No repository has lost.gguf at that size" in text
    assert "origin not found" in html.unescape(admin.get("/admin/mirror").content.decode())


def test_what_lets_a_model_see_stands_on_its_card(admin: Client) -> None:
    files = [ManifestFile(path=name, size=9, sha256="3" * 64) for name in ("m-Q8_0.gguf", "mmproj-F16.gguf")]
    sees = a_version(files=files, first="m-Q8_0.gguf", projector="mmproj-F16.gguf")
    assert "Sees or hears by mmproj-F16.gguf" in text_of(admin, a_model("m", version=sees))
    assert "Sees or hears by" not in text_of(admin, a_model("n", version=a_version()))


def test_what_a_bench_found_is_shown_for_each_hardware(admin: Client, cluster: Cluster) -> None:
    model = cluster.model("chat")
    row = Replica.objects.filter(model=model).first()
    digest = row.digest if row else "x"
    if row is None:
        Replica.objects.create(model=model, node_id=cluster.node.id, slot=9, serve={}, digest=digest)
    Throughput.objects.create(
        digest=digest,
        hardware="2 x NVIDIA L4",
        tps=812.5,
        at_once=24,
        first_s=1.1,
        objective=2.0,
        measured_at=timezone.now(),
    )
    assert "Measured on 2 x NVIDIA L4 812.5 tokens/s, up to 24 at once with the first token within 2 s" in text_of(
        admin, model
    )
    assert "write a number from 0.01 to 600" in press(admin, model, "bench", ttft="soon")
    press(admin, model, "bench", ttft="1.5s")
    assert Job.objects.get().args == {"name": "chat", "ttft": 1.5}


def test_who_may_only_look_gets_no_buttons(person: Person) -> None:
    model = a_model("m", version=a_version())
    reader = person("catalog.view_model", "cluster.view_replica", "cluster.view_node")
    page = reader.get(f"/admin/model/{model.pk}").content.decode()
    assert "acme/tiny-GGUF" in page
    assert "/weights/update" not in page
    assert reader.post(f"/admin/model/{model.pk}/weights/update").status_code == 403
    assert reader.post(f"/admin/model/{model.pk}/weights/nonsense").status_code == 403
