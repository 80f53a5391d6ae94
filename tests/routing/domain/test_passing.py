"""A stream that another gateway meters passes byte for byte; its end and its errors are seen however it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.domain.passing import PassMeter

TOKENS = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n' * 3
ERROR = b'data: {"error":{"message":"m","code":"upstream_lost"}}\n\n'


def fed(data: bytes, cuts: list[int]) -> tuple[PassMeter, bytes]:
    meter, out, last = PassMeter(), b"", 0
    for cut in [*sorted({min(cut, len(data)) for cut in cuts}), len(data)]:
        if cut > last:
            out += meter.feed(data[last:cut], 0.0)
            last = cut
    return meter, out + meter.finish()


CUTS = st.lists(st.integers(1, 200), max_size=6)


@given(cuts=CUTS)
def test_the_end_is_seen_wherever_it_is_cut(cuts: list[int]) -> None:
    data = TOKENS + b"data: [DONE]\n\n"
    meter, out = fed(data, cuts)
    assert out == data
    assert meter.done
    assert meter.at_boundary
    assert meter.error is None


@given(cuts=CUTS, tail=st.integers(1, 40))
def test_an_unfinished_event_is_no_place_for_another_one(cuts: list[int], tail: int) -> None:
    meter, _ = fed(TOKENS[:-tail], cuts)
    assert not meter.done
    assert meter.at_boundary == TOKENS[:-tail].endswith(b"\n\n")


def test_the_first_event_that_says_something_is_timed() -> None:
    meter = PassMeter()
    for number, piece in enumerate((b": keep-alive\n\n", b"da", b"ta: {}\n\n", TOKENS)):
        meter.feed(piece, float(number))
    assert meter.first_token_at == 2.0
    meter = PassMeter()
    meter.feed(ERROR, 1.0)
    assert meter.first_token_at is None


def test_an_error_event_has_a_code_and_a_word_in_a_text_is_none() -> None:
    assert fed(TOKENS + ERROR, [])[0].error == "upstream_lost"
    assert fed(ERROR, [])[0].error == "upstream_lost"
    assert fed(b'data: {"error": {"message":"m"}}\n\n', [])[0].error == "engine_error"
    text = b'data: {"choices":[{"delta":{"content":"\\"error\\""}}],"error":null}\n\n'
    assert fed(text, [])[0].error is None
