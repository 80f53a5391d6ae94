"""Reading requests, the bytes that go to the engine, and error shapes. Refused bodies: tests/routing/gateway/test_refusals.py."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import openai
from routing.domain.endpoints import CHAT, PATHS
from routing.domain.envelopes import error_body
from routing.domain.openai import Ask, engine_error, lacking, parse, upstream_body
from tests.routing.domain.test_jsonbytes import OBJECTS

BODY = b'{"model":"m","messages":[{"role":"user","content":"x"}]%b}'


def read(rest: bytes = b"") -> Ask:
    return parse(CHAT, BODY % rest, max_depth=64)


@pytest.mark.parametrize(
    ("rest", "ask"),
    [
        (b"", Ask(model="m")),
        (b',"stream":null', Ask(model="m")),
        (b',"stream":true', Ask(model="m", stream=True)),
        (b',"stream":true,"stream_options":null', Ask(model="m", stream=True, has_stream_options=True)),
        (
            b',"stream":true,"stream_options":{"include_usage":true}',
            Ask(model="m", stream=True, include_usage=True, has_stream_options=True),
        ),
        (b',"max_tokens":-1,"n":1,"anything":[[{}]]', Ask(model="m")),
    ],
)
def test_what_is_read_of_a_body(rest: bytes, ask: Ask) -> None:
    assert read(rest) == ask


@pytest.mark.parametrize(
    ("rest", "served", "wanted"),
    [
        (b"", "", BODY % b""),
        (b"", "m", BODY % b""),
        (b"", "other", BODY.replace(b'"m"', b'"other"') % b""),
        (b',"stream":true', "", b'{"stream_options":{"include_usage":true},' + (BODY % b',"stream":true')[1:]),
        (
            b',"stream":true,"stream_options": null',
            "",
            BODY % b',"stream":true,"stream_options": {"include_usage":true}',
        ),
        (
            b',"stream":true,"stream_options": {"x":1.0}',
            "",
            BODY % b',"stream":true,"stream_options": {"include_usage":true,"x":1.0}',
        ),
        (
            b',"stream":true,"stream_options":{"include_usage" : false }',
            "",
            BODY % b',"stream":true,"stream_options":{"include_usage" : true }',
        ),
        (b',"stream":true,"stream_options":{}', "", BODY % b',"stream":true,"stream_options":{"include_usage":true}'),
    ],
)
def test_only_what_must_change_changes(rest: bytes, served: str, wanted: bytes) -> None:
    assert upstream_body(BODY % rest, read(rest), served_name=served) == wanted


@given(OBJECTS, st.sampled_from([None, {}, {"include_usage": False}, {"include_usage": True, "y": [1]}, {"y": 2}]))
def test_injected_usage_leaves_every_other_field(value: dict[str, Any], options: Any) -> None:
    value = {**value, "model": "m", "messages": [{"role": "user"}], "stream": True, "stream_options": options}
    body = orjson.dumps(value)
    out = upstream_body(body, parse(CHAT, body, max_depth=64), served_name="served")
    wanted = {**value, "model": "served", "stream_options": {**(options or {}), "include_usage": True}}
    assert orjson.loads(out) == wanted


def test_numbers_keep_their_digits() -> None:
    rest = b',"stream":true,"a":1.0,"b":123456789012345678901234567890,"c":1e5'
    out = upstream_body(BODY % rest, read(rest), served_name="z")
    assert rest in out


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_body_makes_it_fall(body: bytes) -> None:
    for endpoint in PATHS.values():
        with pytest.raises(Refused) as caught:
            parse(endpoint, body, max_depth=8)
        assert caught.value.kind is Kind.INVALID


@pytest.mark.parametrize("kind", list(Kind))
def test_every_kind_has_an_openai_error(kind: Kind) -> None:
    error = json.loads(error_body(Refused(kind, "some_code", "what and why", param="p", extra={"code": 7, "more": 1})))
    assert error["error"]["code"] == "some_code"
    assert error["error"]["more"] == 1
    assert error["error"]["type"].endswith("_error")


@pytest.mark.parametrize(
    ("status", "body", "wanted"),
    [
        (400, {"error": {"code": 400, "message": "m", "type": "invalid_request_error"}}, ("m", "engine_error", None)),
        (
            400,
            {"error": {"code": 400, "message": "m", "type": "exceed_context_size_error"}},
            ("m", "context_length_exceeded", None),
        ),
        (400, {"error": {"message": "m", "code": "x_y", "param": "top_p", "type": "t"}}, ("m", "x_y", "top_p")),
        (400, {"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, ("m", "engine_error", None)),
        (422, {"detail": "m"}, ("m", "engine_error", None)),
        (422, {"detail": [{"loc": ["body"]}]}, ('[{"loc":["body"]}]', "engine_error", None)),
        (500, {"error": "m"}, ("m", "engine_error", None)),
        (500, "<html>", ("The engine answered with status 500.", "engine_error", None)),
        (500, ["x"], ("The engine answered with status 500.", "engine_error", None)),
        (400, {"error": {"message": "key KEY123 is bad"}}, ("key [engine key] is bad", "engine_error", None)),
    ],
)
def test_engine_errors_take_openais_shape(status: int, body: Any, wanted: tuple[str, str, str | None]) -> None:
    text = body if isinstance(body, str) else json.dumps(body)
    error = engine_error(status, text.encode(), secret="KEY123")
    assert (error["message"], error["code"], error["param"]) == wanted
    assert isinstance(error["type"], str)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}),  # llama.cpp
        (404, {"detail": "Not Found"}),  # FastAPI
        (405, {"detail": "Method Not Allowed"}),
        (404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}}),  # vLLM
    ],
)
def test_an_engine_without_the_path_cannot_do_it(status: int, body: Any) -> None:
    error = engine_error(status, json.dumps(body).encode(), secret="")
    status, told = lacking(status, error, "/v1/images/generations")
    assert (status, told["code"], told["param"]) == (400, "not_supported", "model")
    assert told["message"] == "The engine of this model has no /v1/images/generations: use another model."


@pytest.mark.parametrize(
    ("status", "text"), [(404, "The model `x` does not exist."), (404, "Response not found"), (500, "Not Found")]
)
def test_an_engines_404_about_anything_else_stays(status: int, text: str) -> None:
    error = engine_error(status, json.dumps({"error": {"message": text}}).encode(), secret="")
    assert lacking(status, error, "/v1/responses") == (status, error)


def test_a_long_engine_message_is_bounded() -> None:
    body = json.dumps({"error": {"message": "x" * 10**6}}).encode()
    assert len(engine_error(500, body, secret="")["message"]) == openai.ERROR_TEXT
