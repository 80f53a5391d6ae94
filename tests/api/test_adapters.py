"""/models/{name}/adapters over the admin API."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.calls import a_caller
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.rows import a_model
from tests.tiny import make_tiny_gguf

pytestmark = pytest.mark.django_db


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_tiny_gguf(tmp_path / "base.gguf", loras=[(tmp_path / "loud.gguf", "Something loud.")])
    a_model("org/base", weights_path=str(tmp_path / "base.gguf"))
    a_model("org/other")
    return tmp_path


def test_an_adapter_from_adding_to_removing(folder: Path) -> None:
    caller = a_caller(superuser=True)
    path = str(folder / "loud.gguf")
    made = caller("POST", "models/org/base/adapters", {"name": "org/loud", "path": path, "scale": 0.5})
    assert made.status == 201
    assert set(made.body) == {
        "id", "name", "model", "model_name", "path", "version", "repository", "commit", "size", "scale", "facts", "created_at",
    }  # fmt: skip
    assert (made.body["model_name"], made.body["path"], made.body["scale"]) == ("org/base", path, 0.5)
    assert made.body["facts"]["architecture"] == "llama"
    assert [row["name"] for row in caller("GET", "models/org/base/adapters").body["results"]] == ["org/loud"]
    assert caller("GET", "models/org/other/adapters").body["results"] == []
    assert caller("GET", "models/org/base/adapters/org/loud").body["id"] == made.body["id"]
    assert caller("DELETE", "models/org/other/adapters/org/loud").status == 404
    assert caller("DELETE", "models/org/base/adapters/org/loud").status == 204
    assert caller("GET", "models/org/base/adapters").body["results"] == []


def test_what_is_refused_says_why(folder: Path) -> None:
    caller = a_caller(superuser=True)
    path = str(folder / "base.gguf")
    refused = caller("POST", "models/org/base/adapters", {"name": "x", "path": path})
    assert (refused.status, refused.body["error"]["code"]) == (400, "adapter_not_an_adapter")
    assert refused.body["error"]["param"] == "path"
    taken = caller("POST", "models/org/base/adapters", {"name": "org/other", "path": str(folder / "loud.gguf")})
    assert (taken.status, taken.body["error"]["code"]) == (409, "name_taken")
    assert caller("POST", "models/none/adapters", {"name": "x", "path": path}).status == 404
    for wrong in (
        {"path": path},
        {"name": "x", "path": path, "more": 1},
        {"name": "x", "path": path, "scale": "high"},
        {"name": "x"},
        [],
    ):
        assert caller("POST", "models/org/base/adapters", wrong).status == 400


def test_permissions(folder: Path) -> None:
    looks = a_caller("ann", "catalog.view_adapter")
    assert looks("GET", "models/org/base/adapters").status == 200
    body = {"name": "loud", "path": str(folder / "loud.gguf")}
    assert looks("POST", "models/org/base/adapters", body).status == 403
    adds = a_caller("bob", "catalog.add_adapter", "catalog.view_adapter")
    assert adds("POST", "models/org/base/adapters", body).status == 201
    assert adds("DELETE", "models/org/base/adapters/loud").status == 403


def test_adapters_of_a_base_model_are_found_and_held_ones_are_marked(folder: Path, stocked_hub: Hub) -> None:
    caller = a_caller(superuser=True)
    for name in ("loud", "other"):
        repo = stocked_hub.add(Repo(f"voices/{name}", base_model="org/tiny", relation="adapter", downloads=len(name)))
        repo.commit({"lora.gguf": (folder / "loud.gguf").read_bytes()})
    found = caller("GET", "registry/models?adapters_of=org/tiny").body["results"]
    assert [(item["id"], item["adapter"], item["held"]) for item in found] == [
        ("voices/other", True, False),
        ("voices/loud", True, False),
    ]
    made = caller("POST", "models/org/base/adapters", {"name": "loud", "repository": "voices/loud"})
    assert (made.status, made.body["repository"], made.body["path"]) == (201, "voices/loud", "")
    found = caller("GET", "registry/models?adapters_of=org/tiny").body["results"]
    assert [(item["id"], item["held"]) for item in found] == [("voices/other", False), ("voices/loud", True)]
    assert caller("GET", "registry/models/voices/loud").body["held"] is True


def test_newer_files_of_an_adapter_are_asked_for_and_a_job_fetches_them(folder: Path, stocked_hub: Hub) -> None:
    caller = a_caller(superuser=True)
    repo = stocked_hub.add(Repo("org/loud-LoRA"))
    repo.commit({"loud.gguf": (folder / "loud.gguf").read_bytes()})
    made = caller("POST", "models/org/base/adapters", {"name": "org/loud", "repository": "org/loud-LoRA"}).body
    at = "models/org/base/adapters/org/loud"
    assert caller("POST", f"{at}/check-origin").body["changed"] == []
    newest = repo.commit({"loud.gguf": (folder / "loud.gguf").read_bytes() + b"x"})
    told = caller("POST", f"{at}/check-origin").body
    assert (told["id"], told["changed"], told["newest"]) == (made["id"], ["loud.gguf"], newest)
    (row,) = [item for item in caller("GET", "updates").body if item["name"] == "org/base"]
    assert [item["changed"] for item in row["adapters"]] == [["loud.gguf"]]
    assert caller("POST", f"{at}/rollback").body["error"]["code"] == "nothing_to_roll_back"
    job = caller("POST", f"{at}/update")
    assert (job.status, job.body["kind"], job.body["subject"]) == (202, "adapter_update", "org/base")
    assert caller("POST", f"{at}/update").body["error"]["code"] == "job_already_open"
    assert caller("POST", "models/org/other/adapters/org/loud/update").status == 404
