"""The CLI's API client: where the server is, what its answers end with, and how rows are printed."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from llmgw_site.cli import client
from llmgw_site.cli.client import Api, CliError, ExitCode, Target, find_target
from tests.llmgw_site.cli.conftest import Server
from tests.processes import free_port


@pytest.fixture
def api(server: Server) -> Api:
    return Api(Target(server.url, "at-llmgw-x", "a test"))


def refused(code: str, message: str = "because") -> dict[str, Any]:
    return {"error": {"message": message, "type": "x", "code": code, "param": None}}


def test_it_calls_below_api_v1_with_the_token_and_sends_json(server: Server, api: Api) -> None:
    server.answers["POST /api/v1/keys"] = (201, {"id": "key_1"})
    assert api.post("keys", {"name": "n"}) == {"id": "key_1"}
    assert server.seen == [("POST /api/v1/keys", "Bearer at-llmgw-x", b'{"name":"n"}')]


def test_all_reads_every_page_whatever_name_the_server_has_for_itself(server: Server, api: Api) -> None:
    second = "https://elsewhere.example/api/v1/models?page=2"
    server.answers["GET /api/v1/models"] = (200, {"results": [{"id": 1}], "next": second})
    server.answers["GET /api/v1/models?page=2"] = (200, {"results": [{"id": 2}], "next": None})
    assert api.all("models") == [{"id": 1}, {"id": 2}]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\udcff", {"a": ["\ud800"]}])
def test_what_cannot_be_sent_is_a_mistake_of_the_command_line(server: Server, api: Api, value: Any) -> None:
    with pytest.raises(CliError, match="cannot be sent") as caught:
        api.post("keys", {"name": value})
    assert caught.value.code == ExitCode.USAGE
    assert server.seen == []


def test_a_name_that_is_no_text_is_no_part_of_a_path() -> None:
    assert client.part("a/b c") == "a%2Fb%20c"
    with pytest.raises(CliError, match="no text") as caught:
        client.part("\udcff")
    assert caught.value.code == ExitCode.USAGE


def test_an_empty_answer_is_none(server: Server, api: Api) -> None:
    server.answers["DELETE /api/v1/models/m"] = (204, None)
    assert api.delete("models/m") is None


@pytest.mark.parametrize(
    ("status", "body", "code"),
    [
        (400, refused("invalid"), ExitCode.REFUSED),
        (401, refused("invalid_admin_token"), ExitCode.REFUSED),
        (403, refused("permission_denied"), ExitCode.REFUSED),
        (404, refused("not_found"), ExitCode.NOT_FOUND),
        (409, refused("conflict"), ExitCode.REFUSED),
        (503, refused("web_unavailable"), ExitCode.UNREACHABLE),
        (500, b"<html>no JSON</html>", ExitCode.REFUSED),
        (502, [1], ExitCode.REFUSED),
    ],
)
def test_a_refusal_ends_with_its_exit_code(server: Server, api: Api, status: int, body: Any, code: ExitCode) -> None:
    server.answers["GET /api/v1/status"] = (status, body)
    with pytest.raises(CliError) as caught:
        api.get("status")
    assert caught.value.code == code
    assert str(caught.value) == ("because" if isinstance(body, dict) else str(caught.value))


def test_nobody_there_is_unreachable_and_says_where_the_address_came_from() -> None:
    with pytest.raises(CliError, match=r"llmgw up.*came from a test") as caught:
        Api(Target(f"http://127.0.0.1:{free_port()}", "t", "a test")).get("status")
    assert caught.value.code == ExitCode.UNREACHABLE


@pytest.mark.parametrize(("method", "words"), [("get", "within 0.1 s: the log"), ("post", "may have been carried out")])
def test_a_server_that_is_stopped_is_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, method: str, words: str
) -> None:
    monkeypatch.setattr(client, "LOOK", 0.1)
    monkeypatch.setattr(client, "ANSWER", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as stopped,  # the system takes connections, and nobody answers
        pytest.raises(CliError, match="took the request and gave no answer") as caught,
    ):
        getattr(Api(Target(f"http://127.0.0.1:{stopped.getsockname()[1]}", "t", "a test")), method)("mirror")
    assert caught.value.code == ExitCode.UNREACHABLE
    assert words in str(caught.value)


def test_find_goes_by_id_then_by_name_and_lists_what_there_is(server: Server, api: Api) -> None:
    rows = [{"id": "mod_1", "name": "a"}, {"id": "mod_2", "name": "b"}, {"id": "mod_3", "name": "b"}]
    server.answers["GET /api/v1/models"] = (200, {"results": rows, "next": None})
    assert api.find("models", "mod_2", noun="model")["id"] == "mod_2"
    assert api.find("models", "a", noun="model")["id"] == "mod_1"
    with pytest.raises(CliError, match="there are: a, b, b") as missing:
        api.find("models", "c", noun="model")
    assert missing.value.code == ExitCode.NOT_FOUND
    with pytest.raises(CliError, match="give the id"):
        api.find("models", "b", noun="model")
    many = [{"id": f"mod_{number}", "name": f"m{number:02}"} for number in range(13)]
    server.answers["GET /api/v1/models"] = (200, {"results": many, "next": None})
    with pytest.raises(CliError, match=r"m08, m09 and 3 more$"):
        api.find("models", "c", noun="model")


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "quickstart.env").write_text("LLMGW_URL=http://file:1\nLLMGW_ADMIN_TOKEN='t o k'\n# a comment\n")
    target = find_target({"LLMGW_DATA": str(tmp_path)})
    assert (target.url, target.token) == ("http://file:1", "t o k")
    target = find_target({"LLMGW_DATA": str(tmp_path), "LLMGW_URL": "http://file:1/"})
    assert (target.url, target.token) == ("http://file:1", "t o k")


def test_the_token_of_the_file_goes_to_no_other_server(tmp_path: Path) -> None:
    (tmp_path / "quickstart.env").write_text("LLMGW_URL=http://file:1\nLLMGW_ADMIN_TOKEN=secret\n")
    with pytest.raises(CliError, match="the token of another server") as caught:
        find_target({"LLMGW_DATA": str(tmp_path), "LLMGW_URL": "http://env:2"})
    assert caught.value.code == ExitCode.USAGE
    assert "secret" not in str(caught.value)


def test_an_answer_that_is_no_json_is_another_server_s(server: Server) -> None:
    server.answers["GET /api/v1/models"] = (200, b"<html>sign in</html>")
    with pytest.raises(CliError, match="not as llmgw does") as caught:
        Api(Target(server.url, "t", "the environment")).get("models")
    assert caught.value.code == ExitCode.UNREACHABLE


def test_neither_is_a_usage_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="LLMGW_URL and LLMGW_ADMIN_TOKEN not set") as caught:
        find_target({"LLMGW_DATA": str(tmp_path)})
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    "url",
    [
        "127.0.0.1:8800",
        "ftp://h",
        "http://",
        "http://[::1",
        "http://h:99999",
        "http://h:0",
        "http://h:port",
        "http://h\x7f",
    ],
)
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(CliError, match="is no address") as caught:
        Api(find_target({"LLMGW_URL": url, "LLMGW_ADMIN_TOKEN": "at-llmgw-x"}))
    assert caught.value.code == ExitCode.USAGE


def test_a_token_that_no_header_can_carry_is_a_usage_error_and_is_not_shown() -> None:
    with pytest.raises(CliError, match="LLMGW_ADMIN_TOKEN") as caught:
        Api(Target("http://127.0.0.1:1", "sécret", "the environment"))
    assert caught.value.code == ExitCode.USAGE
    assert "cret" not in str(caught.value)


def test_a_token_is_not_shown_by_repr() -> None:
    assert "secret" not in repr(Target("http://x", "secret", "y"))


def test_a_table_shows_what_is_not_known_as_a_dash_and_keeps_brackets(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"name": "[red]x[/red]", "size": None, "on": True}]
    client.show_list(rows, ["name", "size", ("running", lambda row: row["on"])], as_json=False, empty="none")
    out = capsys.readouterr().out
    assert "[red]x[/red]" in out
    assert " - " in out
    assert "yes" in out


def test_json_is_the_rows_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    client.show_list([{"a": 1}], ["a"], as_json=True, empty="none")
    assert json.loads(capsys.readouterr().out) == [{"a": 1}]
    client.show_list([], ["a"], as_json=True, empty="none")
    assert json.loads(capsys.readouterr().out) == []
