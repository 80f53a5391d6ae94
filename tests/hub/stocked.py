"""A hub with a few repositories of a tiny real model, as the tests of the pages and commands look at them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.tiny import tiny_gguf
from tests.tiny_vision import projector_bytes


def stocked(hub: Hub) -> Hub:
    """Quantisations with a projector, a folder of safetensors, one that is gated, one that is damaged, one without a model."""
    small = tiny_gguf().read_bytes()
    repo = hub.add(Repo("org/tiny-GGUF", downloads=10, base_model="org/tiny", relation="quantized"))
    repo.commit(
        {
            "tiny-F16.gguf": small,
            "tiny-Q8_0.gguf": small + bytes(64),
            "mmproj-F16.gguf": projector_bytes(),
            "README.md": b"#",
        }
    )
    folder = hub.add(Repo("org/tiny", downloads=7))
    folder.commit({"config.json": b'{"num_attention_heads": 4, "num_hidden_layers": 2}', "model.safetensors": small})
    hub.add(Repo("org/gated", gated="manual", downloads=5)).commit({"m-Q8_0.gguf": small})
    hub.add(Repo("org/broken", downloads=1)).commit({"m-Q8_0.gguf": b"no model" * 4000})
    hub.add(Repo("org/words", downloads=0)).commit({"README.md": b"#"})
    return hub


@pytest.fixture(scope="module")
def serving_stocked_hub() -> Iterator[Hub]:
    with running() as hub:
        yield stocked(hub)


@pytest.fixture
def stocked_hub(serving_stocked_hub: Hub, settings: Any) -> Hub:
    """The registry that the settings name; it has seen nothing yet."""
    hub = serving_stocked_hub
    hub.faults.reset()
    hub.seen.clear()
    settings.CONFIG = replace(settings.CONFIG, registry=hub.base, private_addresses=True)
    return hub
