"""What engines say of their model, read from real answers of theirs."""

from __future__ import annotations

import orjson
import pytest

from routing.domain.engines import MOST_FACTS, facts_in


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
