"""routing.domain.rows: what is known of a model on another node."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.domain.modules import MapNode, Module, ModuleReport
from routing.domain.nodes import Works
from routing.domain.offers import Offer
from routing.domain.rows import row_of
from routing.domain.snapshot import Placed

NODE = MapNode(
    node_id="n", name="n", address="http://n", public_key="", modules=(ModuleReport(name="inference"), ModuleReport(name="cloud"))
)  # fmt: skip
READY = Offer(model="m")


@pytest.mark.parametrize(
    ("what", "state", "serving_state"),
    [
        ({}, Works.UNKNOWN, "unknown"),
        ({"offer": READY}, Works.WORKS, "ready"),
        ({"placed": Placed(replica_id="r", node_id="n", state="draining")}, Works.CANNOT, "draining"),
        # the snapshot is newer than what the node said, and does not place the model there any more
        ({"offer": READY, "made_at": 2.0}, Works.CANNOT, "stopped"),
        ({"offer": READY, "made_at": 2.0, "heard_at": 3.0}, Works.WORKS, "ready"),
        ({"offer": READY, "made_at": 2.0, "module": Module.CLOUD}, Works.WORKS, "ready"),
        # the node was asked later, and does not offer it
        ({"module": Module.CLOUD}, Works.CANNOT, "absent"),
        ({"module": Module.CLOUD, "made_at": 2.0}, Works.UNKNOWN, "unknown"),
        ({"module": Module.CLOUD, "heard_at": 0.0}, Works.UNKNOWN, "unknown"),
        ({"placed": Placed(replica_id="r", node_id="n", state="ready")}, Works.UNKNOWN, "absent"),
        ({"placed": Placed(replica_id="r", node_id="n", state="ready"), "made_at": 2.0}, Works.WORKS, "ready"),
    ],
)
def test_the_newest_word_on_a_model_counts(what: dict[str, Any], state: Works, serving_state: str) -> None:
    values = {"module": Module.INFERENCE, "offer": None, "placed": None, "heard_at": 1.0, "made_at": 0.0, **what}
    row = row_of(NODE, values.pop("module"), **values)
    assert (row.state, row.serving_state) == (state, serving_state)
