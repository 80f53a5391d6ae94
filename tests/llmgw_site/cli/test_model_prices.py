"""`llmgw model price` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Model
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_price_is_set_and_taken_away(llmgw: Llmgw) -> None:
    a_model()
    done = llmgw("model", "price", "tiny", "--input", "0.15", "--output", "0.6", "--cached", "0.03")
    said = "A million tokens of tiny cost 0.150000 sent, 0.600000 answered, 0.030000 from the cache.\n"
    assert (done.code, done.err, done.out) == (0, "", said)
    assert llmgw("model", "price", "tiny", "--none").out == "tiny has no price.\n"
    assert Model.objects.get().price_input is None
    for words in ((), ("--input", "1"), ("--none", "--input", "1", "--output", "1")):
        assert llmgw("model", "price", "tiny", *words).code == 2
    done = llmgw("model", "price", "tiny", "--input", "a lot", "--output", "1")
    assert done.code == 1
    assert "price_input" in done.err
