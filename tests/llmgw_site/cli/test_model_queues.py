"""`llmgw model queue` and `llmgw model fallback` against a real server."""

from __future__ import annotations

import pytest

from catalog.models import Model
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_queue_and_fallbacks_are_set_and_taken_away(llmgw: Llmgw) -> None:
    a_model("other")
    a_model()
    done = llmgw("model", "queue", "tiny", "--length", "20", "--wait", "1.5")
    assert (done.code, done.out) == (0, "Of the requests for tiny, at most 20 wait at a node, 1.5 s at most.\n")
    assert "as the server's setting says" in llmgw("model", "queue", "tiny", "--length", "none").out
    assert llmgw("model", "queue", "tiny").code == 2
    assert llmgw("model", "fallback", "tiny", "other").out == "While tiny cannot answer, other does.\n"
    assert Model.objects.get(name="tiny").fallbacks == ["other"]
    assert llmgw("model", "fallback", "tiny", "--none").out == "Nobody answers for tiny.\n"
    assert llmgw("model", "fallback", "tiny").code == 2
    assert llmgw("model", "fallback", "tiny", "nobody").code == 1
