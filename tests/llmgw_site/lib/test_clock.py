"""llmgw_site.lib.clock: fresh ids."""

from __future__ import annotations

import os

from llmgw_site.lib.clock import new_id
from llmgw_site.lib.ids import is_id


def test_ids_are_of_their_kind_and_differ() -> None:
    made = [new_id("rec") for _ in range(2000)]
    assert all(is_id("rec", one) for one in made)
    assert len({one[-16:] for one in made}) == len(made)  # the random part alone


def test_a_forked_child_makes_other_ids() -> None:
    new_id("rec")  # some entropy lies ready
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, "".join(new_id("rec")[-16:] for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reading, 1600).decode()
    os.close(reading)
    os.close(writing)
    ours = {new_id("rec")[-16:] for _ in range(100)}
    assert not ours & {theirs[at : at + 16] for at in range(0, 1600, 16)}
