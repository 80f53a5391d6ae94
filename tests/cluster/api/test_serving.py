"""POST /api/v1/jobs with a source: what is taken, what is refused at once."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from cluster.models import Job, JobStep

pytestmark = pytest.mark.django_db
SUM = "a" * 64


def post(client: Client, **args: Any) -> Any:
    return client.post("/api/v1/jobs", {"kind": "serve", "args": args}, content_type="application/json")


def test_a_job_of_a_repository_has_the_steps_of_fetched_weights_and_its_name(admin_client: Client) -> None:
    job = post(admin_client, source=["org/tiny-GGUF"], quantization="Q4_K_M", on_demand=True).json()
    assert (job["subject"], job["state"]) == ("tiny", "queued")
    assert job["args"] == {
        "name": "tiny", "source": ["org/tiny-GGUF"], "quantization": "Q4_K_M", "on_demand": True,
    }  # fmt: skip
    names = list(JobStep.objects.order_by("number").values_list("name", flat=True))
    assert names == ["registry", "plan", "mirror", "check", "catalogue", "wait", "smoke"]


def test_addresses_have_their_checksums(admin_client: Client) -> None:
    job = post(admin_client, source=["https://host/m.gguf"], checksums=[SUM], name="x").json()
    assert (job["subject"], job["args"]["checksums"]) == ("x", [SUM])


def test_a_path_as_source_is_a_path(admin_client: Client) -> None:
    job = post(admin_client, source=["/models/m.gguf"], checksums=[SUM], name="m").json()
    assert (job["args"]["path"], job["args"]["sha256"]) == ("/models/m.gguf", SUM)
    assert "source" not in job["args"]
    assert job["steps"][0]["name"] == "find"


@pytest.mark.parametrize(
    ("args", "param", "words"),
    [
        ({"source": []}, "source", "name one repository"),
        ({"source": ["a/b", "c/d"]}, "source", "name one repository"),
        ({"source": ["https://huggingface.co/org/m/tree/main"]}, "source", "write org/m"),
        ({"source": ["https://host/m.gguf"]}, "sha256", "give the SHA-256 of each"),
        ({"source": ["not a repository"]}, "source", "write OWNER/REPO"),
        ({"source": ["a/b"], "path": "/x.gguf"}, "args.path", "not both"),
        ({"source": ["a/b"], "profile": {"slots": 1}}, "args.profile", "lies on the nodes"),
        ({"source": ["https://host/m.gguf"], "checksums": ["abc"]}, "args.checksums.0", "64 hex digits"),
        ({"path": "/x.gguf", "sha256": "abc"}, "args.sha256", "64 hex digits"),
        ({"source": ["a/b"], "name": "my model"}, "args.name", "begins with a letter or digit"),
        ({"source": ["a/b"], "tp": 0}, "args.tp", ""),
        ({"source": ["a/b"], "file_format": "pickle"}, "args.file_format", ""),
        ({"path": "/x.gguf", "name": "m", "way": "cards"}, "args.way", "name their source"),
        ({"source": ["/models/m.gguf"], "name": "m", "fallbacks": True}, "args.fallbacks", "name their source"),
    ],
)
def test_what_can_be_seen_is_refused_at_once(
    admin_client: Client, args: dict[str, Any], param: str, words: str
) -> None:
    answer = post(admin_client, **args)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert words in error["message"]
    assert not Job.objects.exists()


def test_one_job_for_a_name_is_open_at_a_time(admin_client: Client) -> None:
    first = post(admin_client, source=["org/tiny-GGUF"]).json()
    again = post(admin_client, source=["org/tiny-GGUF"])
    assert (again.status_code, again.json()["error"]["code"]) == (409, "job_already_open")
    assert Job.objects.get().pk == first["id"]
