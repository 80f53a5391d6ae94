"""What goes wrong on the client's side is answered, clearly and in the OpenAI shape, and leaves the stack whole."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from typing import Any

import httpx
import pytest

from tests.processes import fair, wait_for
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 4}


def post(
    stack: Stack, body: bytes | dict[str, Any], *, port: int = 0, path: str = "/v1/chat/completions", **headers: str
) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"authorization": f"Bearer {stack.quickstart['LLMGW_API_KEY']}", "content-type": "application/json"}
    return httpx.post(
        f"http://127.0.0.1:{port or stack.port}{path}",
        content=content, headers={**given, **headers}, timeout=30, trust_env=False, verify=False,
    )  # fmt: skip


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object of a refusal; its shape is checked."""
    assert answer.headers["content-type"].startswith("application/json")
    error: dict[str, Any] = answer.json()["error"]
    assert {"message", "type", "code", "param"} <= set(error)
    assert "Traceback" not in answer.text
    assert answer.headers["x-request-id"]
    return error


def make_key(stack: Stack, name: str, **more: Any) -> dict[str, Any]:
    api = stack.api()
    project = api.all("projects")[0]["id"]
    made: dict[str, Any] = api.post("keys", {"name": f"{name}-{time.monotonic_ns()}", "project": project, **more})
    return made


def test_no_key_and_a_wrong_key(stack: Stack) -> None:
    bare = httpx.post(f"{stack.url}/v1/chat/completions", json=CHAT, trust_env=False, timeout=30)
    wrong = stack.chat(key="sk-llmgw-" + "x" * 43)
    for answer, code in ((bare, "missing_api_key"), (wrong, "invalid_api_key")):
        assert answer.status_code == 401
        assert error_of(answer)["code"] == code
        assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_key_is_refused_within_seconds(stack: Stack) -> None:
    made = make_key(stack, "to-revoke")
    wait_for(lambda: stack.chat(key=made["key"]).status_code == 200, what="the new key to open", every=0.1)
    stack.api().delete(f"keys/{made['id']}")
    wait_for(lambda: stack.chat(key=made["key"]).status_code == 401, what="the revoked key to be refused", every=0.1)
    assert error_of(stack.chat(key=made["key"]))["code"] == "invalid_api_key"


def test_a_model_outside_the_allowlist_is_no_different_from_one_that_is_not_there(stack: Stack) -> None:
    made = make_key(stack, "narrow", models=["another"])
    wait_for(lambda: stack.chat(key=made["key"]).status_code == 404, what="the new key to be known", every=0.1)
    hidden, absent = stack.chat(key=made["key"]), stack.chat(key=made["key"], model="tinx")
    assert hidden.status_code == absent.status_code == 404
    assert error_of(hidden)["message"].replace(MODEL, "X") == error_of(absent)["message"].replace("tinx", "X")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b"[]", 400),
        (b'{"model": 3, "messages": []}', 400),
        (json.dumps({**CHAT, "messages": "Hi."}).encode(), 400),
        (json.dumps({**CHAT, "stream": "yes"}).encode(), 400),
        (b'{"model": "tiny", "messages": ' + b"[" * 100 + b"]" * 100 + b"}", 400),
        (b'{"model": "tiny", "messages": [], "x": "' + b"\xff" + b'"}', 400),
        (b'{"model": "' + b"x" * (17 << 20) + b'"}', 413),
    ],
    ids=["broken", "empty", "no-object", "model-type", "messages-type", "stream-type", "deep", "not-utf8", "large"],
)  # fmt: skip
def test_a_bad_body(stack: Stack, body: bytes, status: int) -> None:
    answer = post(stack, body)
    assert answer.status_code == status, answer.text
    error_of(answer)


@pytest.mark.prove
def test_a_body_that_trickles_in_is_given_up(fresh_stack: Stack) -> None:
    fresh_stack.environ.update(LLMGW_BODY_TIMEOUT="1", LLMGW_HEADER_TIMEOUT="1", LLMGW_QUICKSTART="0")
    fresh_stack.start()
    key = fresh_stack.quickstart["LLMGW_API_KEY"]
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        "Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    )
    assert b" 408 " in trickle(fresh_stack.port, head.encode() + b'{"model"').split(b"\r\n")[0]
    assert b" 408 " in trickle(fresh_stack.port, b"POST /v1/chat/completions HTTP/1.1\r\nHost").split(b"\r\n")[0]


def test_headers_without_end_are_refused(stack: Stack) -> None:
    many = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(100))
    assert b" 431 " in trickle(stack.port, many).split(b"\r\n")[0]


def trickle(port: int, data: bytes) -> bytes:
    """What the server says when no more than this comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        got = b""
        with suppress(ConnectionError):  # it need not wait for all of it to answer and close
            link.sendall(data)
        with suppress(ConnectionResetError):
            while piece := link.recv(65536):
                got += piece
        return got


def test_unknown_paths(stack: Stack) -> None:
    for method, path in (("GET", "/v1/nothing"), ("POST", "/v1/chat"), ("GET", "/v1")):
        answer = httpx.request(
            method, f"{stack.url}{path}", trust_env=False, timeout=30, headers={"authorization": "Bearer x"}
        )
        assert (answer.status_code, error_of(answer)["code"]) == (404, "unknown_path"), path


def test_a_client_key_on_the_node_listener_opens_nothing(stack: Stack) -> None:
    for path in ("/v1/chat/completions", "/api/v1/agent/heartbeat", "/api/v1/models"):
        answer = post(stack, CHAT, port=stack.node_port, path=path)
        assert answer.status_code == 401, path


def test_the_agents_paths_are_not_on_the_client_listener(stack: Stack) -> None:
    answer = post(stack, b"{}", path="/api/v1/agent/heartbeat", **{"x-llmgw-listener": "node"})
    assert answer.status_code == 404


def test_a_disabled_model_is_refused_with_the_reason_and_comes_back(stack: Stack) -> None:
    api = stack.api()
    model = api.find("models", MODEL, noun="model")["id"]
    api.post(f"models/{model}/disable")
    try:
        answer = wait_for(lambda: (got := stack.chat()).status_code == 503 and got, what="a refusal", every=0.1)
        assert answer
        error_of(answer)  # for a moment it may only say that the engine is being stopped
        wait_for(
            lambda: "disabled" in error_of(stack.chat())["message"], seconds=fair(20), what="the reason", every=0.1
        )
        wait_for(lambda: stack.engines(MODEL) == [], seconds=fair(20), what="the engine to stop")
    finally:
        api.post(f"models/{model}/enable")
    wait_for(stack.answers, seconds=fair(30), what="the model to answer again", every=0.2)


@pytest.mark.parametrize(
    "content",
    [b"not a model at all", b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, b"GGUF", b""],
    ids=["no-gguf", "absurd-counts", "cut-off", "empty"],
)
def test_weights_that_are_none_are_refused_before_anything_starts(stack: Stack, content: bytes) -> None:
    path = stack.data.parent / "bad.gguf"
    path.write_bytes(content)
    try:
        job = stack.run_job("bad", path)
        assert job["state"] == "failed"
        assert any(str(path) in step["detail"] for step in job["steps"]), job
    finally:
        path.unlink()
    assert [row for row in stack.api().all("models") if row["name"] == "bad"] == []


def test_weights_that_are_cut_off_in_the_data_are_refused(stack: Stack) -> None:
    from tests import tiny

    path = stack.data.parent / "cut.gguf"
    whole = tiny.tiny_gguf().read_bytes()
    path.write_bytes(whole[: len(whole) * 2 // 3])
    try:
        assert stack.run_job("cut", path)["state"] == "failed"
    finally:
        path.unlink()
    assert [row for row in stack.api().all("models") if row["name"] == "cut"] == []
