"""What is sealed opens with the same secret and for the same thing only, and shows nothing of itself."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw_site.lib.sealing import WrongSecret, seal, unseal


@given(
    text=st.text(max_size=200), secret=st.one_of(st.text(min_size=1, max_size=80), st.binary(min_size=1, max_size=64))
)
def test_what_is_sealed_opens_again(text: str, secret: str | bytes) -> None:
    assert unseal(seal(text, secret=secret, about="prov_1"), secret=secret, about="prov_1") == text


def test_it_opens_with_the_same_secret_for_the_same_thing_only() -> None:
    sealed = seal("sk-provider", secret="one", about="prov_1")
    for secret, about in (("two", "prov_1"), ("one", "prov_2"), ("one", "")):
        with pytest.raises(WrongSecret):
            unseal(sealed, secret=secret, about=about)


@pytest.mark.parametrize("damaged", ["", "zz", "00", "00" * 12, "00" * 40])
def test_what_was_never_sealed_is_refused(damaged: str) -> None:
    with pytest.raises(WrongSecret):
        unseal(damaged, secret="one")


def test_nothing_of_it_shows_and_twice_the_same_looks_different() -> None:
    first, second = seal("sk-provider", secret="one"), seal("sk-provider", secret="one")
    assert first != second
    assert b"sk-provider".hex() not in first
