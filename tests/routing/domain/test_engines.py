"""What engines say of themselves, read from real answers of theirs."""

from __future__ import annotations

import time

import orjson
import pytest

from routing.domain.engines import MOST_FACTS, facts_in, requests_in

LLAMA = b"""# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 3
# HELP llamacpp:requests_deferred Number of requests deferred.
llamacpp:requests_deferred 2
llamacpp:n_decode_total 12
"""
VLLM = b"""# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0"} 9.0
vllm:prompt_tokens_total{engine="0"} 100.0
"""


@pytest.mark.parametrize(
    ("metrics", "wanted"),
    [(LLAMA, 5), (VLLM, 7), (b"", None), (b"up 1\n", None), (b"llamacpp:requests_processing 1e999\n", None),
     (b"llamacpp:requests_processing 1.2.3\n", None)],
)  # fmt: skip
def test_requests_that_run_and_wait(metrics: bytes, wanted: int | None) -> None:
    assert requests_in(metrics) == wanted


def test_figures_without_an_end_take_time_in_proportion_to_their_length() -> None:
    def seconds(lines: int) -> float:
        began = time.process_time()
        assert requests_in(b"llamacpp:requests_processing{\n" * lines) is None
        return time.process_time() - began

    assert seconds(32_000) < 16 * 5 * max(seconds(2_000), 0.001)


def test_numbers_are_kept_and_texts_are_not() -> None:
    llama = {"id": "m", "meta": {"n_params": 135, "n_ctx_train": 2048, "path": "/data/m.gguf", "vocab_only": False}}
    assert facts_in(orjson.dumps({"data": [llama]})) == {
        "meta": {"n_params": 135, "n_ctx_train": 2048, "vocab_only": False}
    }
    vllm = {"id": "m", "root": "/data/m", "max_model_len": 4096, "permission": []}
    assert facts_in(orjson.dumps({"data": [vllm]})) == {"max_model_len": 4096}
    assert facts_in(b'{"data":[{"id":"m"}]}') == {}
    assert len(facts_in(orjson.dumps({"data": [{"meta": {str(n): n for n in range(99)}}]}))["meta"]) == MOST_FACTS


@pytest.mark.parametrize("garbage", [b"", b"[]", b"{}", b'{"data":[]}', b'{"data":[1]}', b'{"data":{"x":1}}', b"null"])
def test_what_is_no_list_of_models_is_refused(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="no list"):
        facts_in(garbage)
