"""`llmgw model`, `llmgw key` and `llmgw token` against a real server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catalog.models import ApiKey, Event, Model
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_key, a_model, a_project
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_model_from_adding_to_removing(llmgw: Llmgw) -> None:
    path = tiny_gguf()
    done = llmgw("model", "add", "org/tiny", str(path), "--context", "512", "--slots", "2", "--memory", "1GiB",
                 "--arg=-b", "--arg", "64", "--env", "OMP_PLACES=cores")  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert "Added org/tiny" in done.out
    shown = llmgw("model", "show", "org/tiny", "--json").json
    profile = shown["profiles"][0]
    assert (profile["args"], profile["env"], profile["memory"]) == (["-b", "64"], {"OMP_PLACES": "cores"}, 1 << 30)
    assert shown["facts"]["layers"] == 2
    text = llmgw("model", "show", shown["id"]).out
    for words in (
        r"name +org/tiny\n", r"enabled +yes\n", r"answered by +llama.cpp\n", r"scaling +has 1 replica\n", r"owner +nobody\n",
        r"architecture +llama, 2 layers, \d+ wide\n", r"trained for +[\d,]+ tokens\n", r"512 tokens +2 .* 1.0 GiB", r"-b 64", "OMP_PLACES=cores",
    ):  # fmt: skip
        assert re.search(words, text), (words, text)
    assert not re.search(r"[{}\[\]]", text), "words, and no JSON"
    assert [row["name"] for row in llmgw("model", "list", "--json").json] == ["org/tiny"]
    assert "F16" in llmgw("model", "list").out
    assert llmgw("model", "disable", "org/tiny", "--why", "night").code == 0
    assert Event.objects.get(kind="model_disabled").why == "night"
    assert "enabled" in llmgw("model", "enable", "org/tiny").out
    assert llmgw("model", "remove", "org/tiny").code == 0
    assert "No models yet" in llmgw("model", "list").out


def test_what_the_server_refuses_ends_with_1_and_its_reason(llmgw: Llmgw, tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_text("nothing")
    done = llmgw("model", "add", "m", str(bad))
    assert (done.code, done.out) == (1, "")
    assert "no GGUF file" in done.err
    assert llmgw("model", "add", "m m", "/x.gguf").code == 1
    assert "'--tools' was refused" in llmgw("model", "add", "m", "/x.gguf", "--arg=--tools").err
    assert not Model.objects.exists()


def test_weights_that_the_server_does_not_have_are_told(llmgw: Llmgw) -> None:
    done = llmgw("model", "add", "m", "/not/here.gguf")
    assert done.code == 1
    assert "cannot be estimated: mend the path, or say how much to reserve, such as 2GiB" in done.err
    done = llmgw("model", "add", "m", "/not/here.gguf", "--memory", "2GiB")
    assert done.code == 0
    assert "has no file /not/here.gguf" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("model", "add", "m", "/x", "--memory", "much"),
        ("model", "add", "m", "/x", "--env", "novalue"),
        ("model", "add", "m"),
        ("model", "add", "m", "/x", "--slots", "0"),
        ("key", "create"),
        ("token", "create", "t", "--days", "0"),
    ],
)
def test_a_wrong_command_line_ends_with_2(words: tuple[str, ...], llmgw: Llmgw) -> None:
    assert llmgw(*words).code == 2
    assert not Model.objects.exists()


@pytest.mark.parametrize(
    "words",
    [("model", "show", "x"), ("model", "remove", "x"), ("model", "disable", "x"), ("key", "revoke", "x"), ("token", "revoke", "x")],
)  # fmt: skip
def test_what_is_not_there_ends_with_4(words: tuple[str, ...], llmgw: Llmgw) -> None:
    a_model("other")
    assert llmgw(*words).code == 4


def test_no_server_ends_with_3(llmgw: Llmgw, monkeypatch: pytest.MonkeyPatch, free_port: int) -> None:
    monkeypatch.setenv("LLMGW_URL", f"http://127.0.0.1:{free_port}")
    assert llmgw("model", "list").code == 3


def test_a_key_alone_stands_on_standard_output(llmgw: Llmgw) -> None:
    a_project("main")
    done = llmgw("key", "create", "bot", "--model", "a/b", "--days", "1")
    assert done.code == 0
    assert done.out.strip().startswith("sk-llmgw-")
    key = ApiKey.objects.get()
    assert (key.models, key.expires_at is not None) == (["a/b"], True)
    listed = llmgw("key", "list").out
    assert "live" in listed
    assert done.out.strip() not in listed
    assert llmgw("key", "revoke", "bot").code == 0
    assert llmgw("key", "list", "--json").json == []
    assert llmgw("key", "list", "--all", "--json").json[0]["revoked_at"]
    assert llmgw("key", "revoke", "bot").code == 4


def test_a_key_is_rotated_with_a_grace_and_found_by_either_beginning(llmgw: Llmgw) -> None:
    a_project()
    first = llmgw("key", "create", "bot", "--user", "root").out.strip()
    assert llmgw("key", "rotate", "bot").code == 2, "the grace is given"
    second = llmgw("key", "rotate", "bot", "--grace-hours", "24", "--why", "yearly").out.strip()
    assert (second.startswith("sk-llmgw-"), second != first) == (True, True)
    listed = llmgw("key", "list").out
    assert listed.count("bot") == 1
    assert all(text[:15] in listed for text in (first, second))
    assert Event.objects.get(kind="key_rotated").why == "yearly"
    third = llmgw("key", "rotate", first[:15], "--grace-hours", "0").out.strip()
    listed = llmgw("key", "list").out
    assert third[:15] in listed
    assert second[:15] not in listed
    assert "root" in listed


def test_a_key_needs_its_project_named_where_there_are_several(llmgw: Llmgw) -> None:
    a_project("one"), a_project("two")
    assert "name one" in llmgw("key", "create", "bot").err
    assert llmgw("key", "create", "bot", "--project", "two", "--json").json["project_name"] == "two"


def test_a_name_means_the_live_key(llmgw: Llmgw) -> None:
    project = a_project()
    for _ in range(2):
        assert a_key("bot", project=project)[0].pk
        assert llmgw("key", "revoke", "bot").code == 0
    live, _ = a_key("bot", project=project)
    assert llmgw("key", "revoke", live.prefix).code == 0


def test_a_token_made_by_the_command_works(llmgw: Llmgw, monkeypatch: pytest.MonkeyPatch) -> None:
    made = llmgw("token", "create", "second", "--days", "2")
    monkeypatch.setenv("LLMGW_ADMIN_TOKEN", made.out.strip())
    assert {row["name"] for row in llmgw("token", "list", "--json").json} == {"cli", "second"}
    assert llmgw("token", "revoke", "second").code == 0
    done = llmgw("token", "list")
    assert done.code == 1
    assert "unknown or revoked" in done.err
