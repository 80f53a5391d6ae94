"""cluster.domain.decided: headlines of the decision log."""

from __future__ import annotations

import pytest

from cluster.domain.decided import decided
from cluster.domain.types import Standing

NOTHING = Standing()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (NOTHING, Standing(parked_at=1.0, failures=5), "chat is parked"),
        (Standing(parked_at=1.0), NOTHING, "chat is no longer parked"),
        (NOTHING, Standing(asked_at=1.0), "chat wakes up"),
        (Standing(asked_at=1.0, grown=1), NOTHING, "chat goes to rest"),
        (NOTHING, Standing(grown=1), "chat gets a replica more"),
        (Standing(grown=2), Standing(grown=1), "chat gives a replica back"),
        (Standing(restarting=("a", "b")), NOTHING, "the restart of chat is over"),
        (Standing(restarting=("a", "b")), Standing(restarting=("b",)), "the restart of chat goes on, 1 to go"),
        (NOTHING, Standing(failures=1), "what is wanted of chat changed"),
    ],
)
def test_the_headline_says_what_became_of_it(before: Standing, after: Standing, said: str) -> None:
    assert decided("chat", before, after) == said
