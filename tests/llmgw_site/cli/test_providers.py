"""`llmgw provider` and external models on the command line, against a real server."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from catalog.models import Model, Provider
from catalog.services import providers
from tests.llmgw_site.cli.conftest import Llmgw

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "sk-provider-51f0c2"
URL = "https://api.example.com/v1"


def kept() -> str:
    row = Provider.objects.get()
    return providers.unsealed(row.pk, row.sealed_key)


def test_a_provider_and_its_model_from_adding_to_removing(
    llmgw: Llmgw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    done = llmgw("provider", "add", "acme", URL, "--key-from", str(file))
    assert (done.code, done.err) == (0, "")
    assert kept() == KEY
    monkeypatch.setattr("sys.stdin", io.StringIO("sk-next\n"))
    assert llmgw("provider", "set-key", "acme").code == 0
    assert kept() == "sk-next"
    assert llmgw("model", "add", "gpt", "--provider", "acme", "--provider-model", "gpt-9").code == 0
    assert Model.objects.get().provider_model == "gpt-9"
    assert "provider acme" in llmgw("model", "list").out
    assert "Its provider answers for it" in llmgw("model", "show", "gpt").out
    shown = llmgw("provider", "show", "acme")
    assert "gpt" in shown.out
    assert llmgw("provider", "remove", "acme").code == 1
    assert llmgw("model", "remove", "gpt").code == 0
    assert llmgw("provider", "clear-key", "acme").code == 0
    assert "none" in llmgw("provider", "list").out
    assert llmgw("provider", "remove", "acme").code == 0
    assert "No providers yet" in llmgw("provider", "list").out


def test_no_output_ever_shows_the_key(llmgw: Llmgw, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    runs = [
        llmgw("provider", "add", "acme", URL, "--key-from", str(file), "--json"),
        llmgw("provider", "set-key", "acme", "--key-from", str(file)),
        llmgw("provider", "list", "--json"),
        llmgw("provider", "show", "acme", "--json"),
    ]
    assert [run.code for run in runs] == [0, 0, 0, 0]
    assert not any(KEY in run.out + run.err for run in runs)


def test_a_key_file_stays_on_the_cloud_nodes(llmgw: Llmgw) -> None:
    assert llmgw("provider", "add", "acme", URL, "--key-file", "/etc/llmgw/acme.key").code == 0
    assert "file /etc/llmgw/acme.key" in llmgw("provider", "list").out


@pytest.mark.parametrize(
    "words",
    [
        ("provider", "add", "acme", URL, "--key-from", "/not/here"),
        ("provider", "add", "acme"),
        ("model", "add", "gpt"),
        ("model", "add", "gpt", "/x.gguf", "--provider", "acme"),
    ],
)
def test_a_wrong_command_line_ends_with_2(words: tuple[str, ...], llmgw: Llmgw) -> None:
    assert llmgw(*words).code == 2
    assert not Provider.objects.exists()
    assert not Model.objects.exists()


def test_an_empty_key_is_refused_before_anything_is_sent(llmgw: Llmgw, monkeypatch: pytest.MonkeyPatch) -> None:
    llmgw("provider", "add", "acme", URL)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert llmgw("provider", "set-key", "acme").code == 2


def test_what_is_not_there_ends_with_4(llmgw: Llmgw) -> None:
    for words in (("show", "x"), ("set-key", "x"), ("remove", "x")):
        assert llmgw("provider", *words).code == 4


def test_a_model_is_pinned_to_nodes_and_given_timeouts(llmgw: Llmgw) -> None:
    done = llmgw(
        "model",
        "add",
        "m",
        "/not/here.gguf",
        "--memory",
        "2GiB",
        "--node",
        "alpha",
        "--node",
        "beta",
        "--first-byte-timeout",
        "1800",
    )
    assert done.code == 0
    model = Model.objects.get()
    assert (model.profiles.get().nodes, model.first_byte_timeout) == (["alpha", "beta"], 1800.0)


def test_the_status_says_that_a_model_is_external_and_what_it_lacks(llmgw: Llmgw) -> None:
    llmgw("provider", "add", "acme", URL)
    llmgw("model", "add", "gpt", "--provider", "acme", "--provider-model", "gpt-9")
    done = llmgw("status")
    assert done.code == 0
    assert "external" in done.out
    assert "no node runs the module cloud" in done.out


def test_what_is_for_engines_is_refused_for_a_provider(command: Llmgw) -> None:
    refused = command("model", "add", "big", "--provider", "acme", "--provider-model", "gpt-9", "--context", "4096")
    assert (refused.code, "--context is for weights that nodes run" in refused.err) == (2, True)
