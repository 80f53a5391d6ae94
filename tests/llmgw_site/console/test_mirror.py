"""The page *Mirror*: what is kept, who has it, how far it is; added and removed."""

from __future__ import annotations

import hashlib
import html
import re

import pytest
from django.test import Client

from catalog.domain.manifests import ManifestFile
from catalog.models import Version
from cluster.domain.fetching import FetchReport
from cluster.wire import WeightsReport
from tests.cluster.rows import Machine
from tests.hub.app import Hub
from tests.llmgw_site.console.conftest import Person
from tests.rows import a_model, a_version
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db
PAGE = "/admin/mirror"


def text_of(client: Client, path: str = PAGE) -> str:
    page = html.unescape(client.get(path, follow=True).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_an_empty_mirror_says_how_weights_come_into_it(admin: Client) -> None:
    text = text_of(admin)
    assert "No weights are kept yet" in text
    assert "llmgw model serve OWNER/REPOSITORY" in text


def test_each_version_is_a_row_with_files_holders_progress_and_users(admin: Client) -> None:
    whole, coming, stuck = a_version("acme/whole", size=2048), a_version("acme/coming"), a_version("acme/stuck")
    a_model("tiny", version=whole)
    one, two = Machine("one"), Machine("two")
    one.heartbeat(weights_mark="x", weights=(WeightsReport(path=whole.pk, size=2048),), fetches=())
    two.heartbeat(
        fetches=(
            FetchReport(version=coming.pk, size=coming.size, there=coming.size // 4, rate=1 << 20, shared=1 << 20),
            FetchReport(version=stuck.pk, size=stuck.size, code="disk_full", message="no room for it"),
        )
    )
    text = text_of(admin)
    assert "acme/whole Q4_K_M" in text
    assert "1 file tiny-Q4_K_M.gguf 2.0 KiB 111111111111…" in text
    assert "whole" in text
    assert "Model tiny" in text
    assert "two: 16.0 MiB of 64.0 MiB, 1.0 MiB/s; 1.0 MiB were here already 25 %" in text
    assert "No room for it. disk_full" in text
    page = admin.get(PAGE).content.decode()
    assert page.count('data-dialog="remove"') == 2, "what a model needs has no button"
    assert admin.get(f"{PAGE}?parts=1").content.decode().startswith("<section")


def test_weights_of_plain_addresses_are_named_once(admin: Client) -> None:
    files = [ManifestFile(path="m.gguf", size=2048, sha256="1" * 64, url="https://x.test/m.gguf")]
    a_version("", registry="", commit="", files=files, first="m.gguf")
    text = text_of(admin)
    assert "m.gguf Q4_K_M from plain addresses, gguf" in text


def test_weights_are_fetched_by_the_form_and_a_refusal_stays_in_it(admin: Client, stocked_hub: Hub) -> None:
    answer = admin.post(f"{PAGE}/add", {"source": "org/tiny-GGUF", "quantization": ""})
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 409
    assert "name one by its quantization" in page
    assert "several_models" in page
    assert 'id="error-quantization"' in page
    assert ">org/tiny-GGUF</textarea>" in page
    answer = admin.post(f"{PAGE}/add", {"source": " org/tiny-GGUF ", "quantization": "F16"}, follow=True)
    assert "is fetched and kept" in answer.content.decode()
    assert Version.objects.get().quantization == "F16"
    assert admin.get(f"{PAGE}/add").status_code == 302


@pytest.mark.parametrize(
    "source", ["", "\x00", "a b", "<script>alert(1)</script>", "https://huggingface.co/org/tiny", "x" * 5000]
)
def test_nonsense_is_refused_in_the_form(admin: Client, stocked_hub: Hub, source: str) -> None:
    answer = admin.post(f"{PAGE}/add", {"source": source})
    assert answer.status_code == 409
    assert "<script>alert" not in answer.content.decode()


def test_a_version_is_removed_and_one_that_is_needed_is_not(admin: Client) -> None:
    free, used = a_version("acme/free"), a_version("acme/used")
    a_model("tiny", version=used)
    assert "is kept no longer" in admin.post(f"{PAGE}/{free.pk}/remove", follow=True).content.decode()
    assert "needed by" in html.unescape(admin.post(f"{PAGE}/{used.pk}/remove", follow=True).content.decode())
    assert "removed already" in admin.post(f"{PAGE}/{free.pk}/remove", follow=True).content.decode()
    assert list(Version.objects.all()) == [used]


def test_where_plain_addresses_come_from_is_told_by_a_form_or_looked_for(admin: Client, stocked_hub: Hub) -> None:
    data, url = tiny_gguf().read_bytes(), "https://x.test/tiny-F16.gguf"
    files = [ManifestFile(path="tiny-F16.gguf", size=len(data), sha256=hashlib.sha256(data).hexdigest(), url=url)]
    plain = a_version("", registry="", commit="", files=files, first="tiny-F16.gguf")
    a_version("acme/known")
    path = f"{PAGE}/{plain.pk}/origin"
    assert admin.get(PAGE).content.decode().count('data-dialog="origin"') == 1
    for repository, commit, at in (("org/broken", "", "repository"), ("org/tiny-GGUF", "0" * 12, "commit")):
        answer = admin.post(path, {"repository": repository, "commit": commit})
        page = answer.content.decode()
        assert answer.status_code == 409
        assert re.search(r'<dialog[^>]* id="origin"[^>]* open>', page)
        for part in (f'action="{path}"', f'name="repository" value="{repository}"', f'name="commit" value="{commit}"'):
            assert part in page, part
        assert re.findall(r'id="error-(\w+)"', page) == [at]
    assert (
        "comes from org/tiny-GGUF" in admin.post(path, {"repository": "", "commit": ""}, follow=True).content.decode()
    )
    assert "from org/tiny-GGUF (traced)" in text_of(admin)
    assert 'data-dialog="origin" data-action' not in admin.get(PAGE).content.decode()
    assert admin.get(path).headers["Location"] == PAGE
    assert admin.post(f"{PAGE}/ver_none/origin").status_code == 404


def test_who_may_only_look_sees_no_forms_and_may_not_act(person: Person) -> None:
    version = a_version()
    reader = person("catalog.view_version", "cluster.view_node")
    page = reader.get(PAGE).content.decode()
    assert "acme/tiny-GGUF" in page
    assert "Fetch weights" not in page
    assert "data-dialog" not in page
    assert reader.post(f"{PAGE}/add", {"source": "a/b"}).status_code == 403
    for verb in ("remove", "origin"):
        assert reader.post(f"{PAGE}/{version.pk}/{verb}").status_code == 403
    assert person("catalog.view_model", name="other").get(PAGE).status_code == 403
