"""Responses and rankings against a running llmgw."""

from __future__ import annotations

import httpx
import pytest

from tests import tiny
from tests.e2e.test_openai_client import usage_of
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.live("stack"), pytest.mark.timeout(300)]


def test_a_response_of_the_openai_package(stack: Stack) -> None:
    with stack.openai() as client:
        answer = client.responses.with_raw_response.create(model=MODEL, input="Hi.", temperature=0)
    assert answer.parse().output_text == tiny.TEXT
    record = usage_of(stack, answer.headers["x-request-id"])
    assert (record["endpoint"], record["completion_tokens"]) == ("responses", 12)


@pytest.mark.usefixtures("more_models")
def test_texts_are_ranked_by_a_model_that_was_served_as_any_other(stack: Stack) -> None:
    answer = httpx.post(
        f"{stack.url}/v1/rerank",
        headers={"authorization": f"Bearer {stack.quickstart['LLMGW_API_KEY']}"},
        json={"model": "tiny-rank", "query": "one", "documents": ["a b c", "b"]},
        trust_env=False,
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    assert {item["index"] for item in answer.json()["results"]} == {0, 1}
    record = usage_of(stack, answer.headers["x-request-id"])
    assert (record["endpoint"], record["prompt_tokens"]) == ("rerank", answer.json()["usage"]["prompt_tokens"])
