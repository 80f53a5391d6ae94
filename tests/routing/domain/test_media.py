"""What engines would fetch of a request, and what they say of pictures that they cannot use."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from routing.domain import media
from routing.domain.endpoints import CHAT, COMPLETIONS, EMBEDDINGS
from routing.domain.openai import parse

HOST = "http://169.254.169.254/latest"
DATA = "data:image/png;base64,iVBORw0KGgo="


def of_part(part: Any) -> str:
    text = {"type": "text", "text": HOST}
    return media.fetched(
        CHAT, {"messages": [{"role": "user", "content": HOST}, {"role": "user", "content": [text, part]}]}
    )


@pytest.mark.parametrize(
    ("part", "place"),
    [
        ({"type": "image_url", "image_url": {"url": HOST}}, "image_url.url"),
        ({"type": "image_url", "image_url": HOST}, "image_url"),
        ({"image_url": HOST}, "image_url"),  # as vLLM takes it too
        ({"type": "text", "text": {"url": HOST}}, "text.url"),
        ({"type": "video_url", "video_url": {"url": "HTTPS://host/film"}}, "video_url.url"),
        ({"type": "input_video", "input_video": {"data": HOST}}, "input_video.data"),
        ({"type": "input_audio", "input_audio": {"data": HOST, "format": "wav"}}, "input_audio.data"),
        ({"type": "image_url", "image_url": {"url": " \tftp://host/x"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "file:/etc/passwd"}}, "image_url.url"),
        ({"type": "image_url", "image_url": {"url": "http:\\\\host"}}, "image_url.url"),
        ({"type": "x", "x": [{"y": [DATA, "s3://bucket/x"]}]}, "x[0].y[1]"),
    ],
)
def test_an_address_is_found_wherever_an_engine_would_look(part: Any, place: str) -> None:
    assert of_part(part) == f"messages[1].content[1].{place}"


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": HOST},
        {"type": "text", "text": "file:///etc/passwd"},
        {"type": "image_url", "image_url": {"url": DATA, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "iVBORw0KGgo="}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": DATA}, "uuid": "urn:uuid:7"},
        {"type": "image_url", "image_url": {"url": 7}},
        HOST,
        None,
    ],
)
def test_text_and_data_are_no_addresses(part: Any) -> None:
    assert of_part(part) == ""


@pytest.mark.parametrize(
    ("endpoint", "rest", "place"),
    [
        (COMPLETIONS, {"prompt": HOST}, ""),
        (COMPLETIONS, {"prompt": [HOST, {"prompt_string": HOST, "multimodal_data": [DATA]}]}, ""),
        (COMPLETIONS, {"prompt": [{"prompt_string": "x", "multimodal_data": [HOST]}]}, "prompt[0].multimodal_data[0]"),
        (EMBEDDINGS, {"input": [HOST]}, ""),
        (EMBEDDINGS, {"input": [{"content": {"url": HOST}}]}, "input[0].content.url"),
        (EMBEDDINGS, {"input": "x", "messages": [{"content": {"image_url": HOST}}]}, "messages[0].content.image_url"),
        (CHAT, {"messages": [{"role": "user"}], "tools": [{"function": {"description": HOST}}]}, ""),
        (CHAT, {"messages": [{"role": "user", "name": HOST, "content": None}]}, ""),
    ],
)
def test_every_endpoint_is_read(endpoint: str, rest: dict[str, Any], place: str) -> None:
    assert parse(endpoint, orjson.dumps({"model": "m", **rest}), max_depth=64).fetched == place


@pytest.mark.parametrize(
    ("status", "message", "wanted"),
    [
        (500, "image input is not supported - hint: if this is unexpected, provide the mmproj", "media_not_supported"),
        (500, "video input is not supported - hint", "media_not_supported"),
        (500, "Invalid base64 value", "media_unreadable"),
        (500, "uri must be base64 encoded", "media_unreadable"),
        (400, "Failed to load image or audio file", "media_unreadable"),
    ],
)
def test_what_is_the_requests_fault_is_a_400(status: int, message: str, wanted: str) -> None:
    got, error = media.told(status, {"message": message, "type": "server_error", "code": "engine_error", "param": None})
    assert (got, error["type"], error["code"]) == (400, "invalid_request_error", wanted)
    assert "mmproj" not in error["message"]


def test_other_errors_stay_as_they_are() -> None:
    error = {"message": "the image of the world", "type": "server_error", "code": "engine_error", "param": None}
    assert media.told(500, error) == (500, error)
