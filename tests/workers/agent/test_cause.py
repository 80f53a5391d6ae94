"""workers.agent.cause: what an engine's log says of its end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.agent.cause import LONGEST, cause_of

GGUF = """\
0.00.020.143 I srv          init: loading model
0.00.020.198 I srv    load_model: loading model '/m/broken.gguf'
0.00.020.266 E gguf_init_from_reader: key 'llama.embedd' has invalid GGUF type -1
0.00.020.266 E gguf_init_from_reader: failed to read key-value pairs
0.00.020.391 E llama_model_load: error loading model: llama_model_loader: failed to load model from /m/broken.gguf
Traceback (most recent call last):
RuntimeError: Failed to init server, please check the input params.
0.00.025.529 E srv          init: exiting due to model loading error
"""
VLLM = """\
(EngineCore pid=7) INFO 11-30 01:02:03 [core.py:90] Initializing an engine
(EngineCore pid=7) ERROR 11-30 01:02:09 [core.py:842] EngineCore failed to start.
Traceback (most recent call last):
  File "core.py", line 1
ValueError: No available memory for the cache blocks
"""


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", ""),
        ("all is well\nstill loading", ""),
        (GGUF, "key 'llama.embedd' has invalid GGUF type -1"),
        (VLLM, "ValueError: No available memory for the cache blocks"),
        ("Traceback (most recent call last):\n  File x\nValueError: no cards\nmore", "ValueError: no cards"),
        (
            "  File x\ntorch.OutOfMemoryError: CUDA out of memory. Tried",
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        ("error while loading shared libraries: libcuda.so.1", "error while loading shared libraries: libcuda.so.1"),
        ("0.1.2 E ggml_cuda: cudaMalloc failed: out of memory", "cudaMalloc failed: out of memory"),
        ("E \nE : .", ""),
        ("error " + "x" * 1000, "error " + "x" * (LONGEST - 7) + "…"),
    ],
)
def test_the_first_line_that_tells_an_error_is_the_cause(log: str, cause: str) -> None:
    assert cause_of(log) == cause


@given(st.text())
def test_whatever_a_log_holds_its_cause_is_one_bounded_line_of_it(log: str) -> None:
    cause = cause_of(log)
    assert len(cause) <= LONGEST
    assert cause.rstrip("…").strip() in log
    assert len(cause.splitlines()) <= 1
