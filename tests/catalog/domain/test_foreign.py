"""JSON of strangers is counted before it is parsed, and of its texts only that is kept which can be kept.

How much memory the most takes that is let in is measured by tests/catalog/domain/test_hostile.py ("largest").
"""

from __future__ import annotations

import pytest

from catalog.domain.cards import repo_card
from catalog.domain.foreign import MAX_ITEMS, parsed, plain
from catalog.domain.hf_config import config_facts
from catalog.domain.repository import MAX_FILES
from catalog.registry.client import MAX_ANSWER
from llmgw_site.lib.errors import Refused
from tests.catalog.domain.hostile_seeds import PIECES, of_files, of_keys, of_pieces


@pytest.mark.parametrize("piece", PIECES)
def test_as_many_items_as_are_allowed_are_read_and_one_more_is_not(piece: bytes) -> None:
    text = of_pieces(piece, MAX_ITEMS)
    assert parsed(text)
    with pytest.raises(ValueError, match="more than 150000 items"):
        parsed(text[:-1] + b"," * 4 + b"1]")


def test_keys_are_items() -> None:
    assert len(parsed(of_keys(MAX_ITEMS))) == MAX_ITEMS - 1
    with pytest.raises(ValueError, match="more than 150000 items"):
        parsed(of_keys(MAX_ITEMS + 2))


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"NaN", b"\xff", b'"\\ud800"', b"[" * 5000 + b"]" * 5000])
def test_what_is_no_json_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="it is no JSON"):
        parsed(text)


def test_the_largest_repository_that_is_taken_fits_into_one_answer() -> None:
    text = of_files(MAX_FILES)
    assert len(text) < MAX_ANSWER
    assert len(repo_card(parsed(text)).files) == MAX_FILES
    with pytest.raises(Refused, match="more than 15000"):
        repo_card(parsed(of_files(MAX_FILES + 1)))


def test_a_text_is_kept_without_what_no_database_takes() -> None:
    assert plain("a\0b\n\x1b[31mc\ud800d é 模型", 100) == "ab[31mcd é 模型"
    assert plain("abc", 2) == "ab"
    assert [plain(value, 9) for value in (None, 5, ["a"], b"a")] == [""] * 4


def test_a_config_with_more_layers_than_memory_has_bytes_has_no_known_shape() -> None:
    facts = config_facts({"num_hidden_layers": 1 << 47, "num_attention_heads": 8, "hidden_size": 64}, size=1)
    assert facts.caches == ()
