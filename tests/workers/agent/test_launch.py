"""What is checked before an engine starts, each with a code and a sentence that names the path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.mirror.store import Store
from cluster.wire import AdapterFile, CardReport, EngineBuild, Serve, Weights
from llmgw_site.lib.config import Config, load
from llmgw_site.lib.units import GIB
from tests.routing.gateway.stored import VERSION, put
from tests.workers.agent.node import stop_engines
from workers.agent import process
from workers.agent import weights as weights_of
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.events import Spawn
from workers.agent.launch import Starter, StartRefused, room_on_cards, visible
from workers.agent.store import IntentStore


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    yield load({"LLMGW_DATA": str(tmp_path / "data")})
    stop_engines(tmp_path / "data", grace=0.2)


def serve(path: Path, **changes: object) -> Serve:
    base = Serve(engine="llama.cpp", model="m", weights=Weights(path=str(path), size=4))
    return replace(base, **changes)  # type: ignore[arg-type]


def starter(config: Config) -> Starter:
    config.data.mkdir(exist_ok=True)
    return Starter(config, {"llama.cpp": LlamaCpp()}, IntentStore(config.data / "intents.json"), Store(config.store))


def order(wanted: Serve, replica_id: str = "rep_1") -> Spawn:
    return Spawn(replica_id=replica_id, launch=1, generation=1, serve=wanted, cause="test")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "w.gguf"
    path.write_bytes(b"GGUF")
    return path


@pytest.mark.parametrize(
    ("changes", "code", "final"),
    [
        ({"args": ("--tools", "all")}, "engine_args_refused", True),
        ({"args": ("--log-file", "/tmp/x")}, "engine_args_refused", True),
        ({"env": {"LD_PRELOAD": "/x.so"}}, "engine_args_refused", True),
        ({"env": {"LLAMA_ARG_MODEL": "/etc/passwd"}}, "engine_args_refused", True),
        ({"engine": "sglang"}, "engine_unknown", True),
    ],
)
def test_hostile_arguments_are_refused_on_the_node_too_and_start_nothing(
    config: Config, weights: Path, changes: dict[str, object], code: str, final: bool
) -> None:
    with pytest.raises(StartRefused) as caught:
        starter(config).start(order(serve(weights, **changes)), "k")
    assert (caught.value.failure.code, caught.value.failure.final) == (code, final)
    assert process.find(config.data) == []
    assert not (config.data / "intents.json").exists()


def test_a_replica_id_that_is_no_file_name_is_refused(config: Config, weights: Path) -> None:
    with pytest.raises(StartRefused, match="no plain name"):
        starter(config).start(order(serve(weights), "../../x"), "k")


def test_an_engine_that_is_not_installed_says_how_to_install_it(config: Config, weights: Path) -> None:
    class Absent(LlamaCpp):
        def build(self) -> EngineBuild:
            return EngineBuild(kind=self.kind, problem="not installed: install it")

    made = Starter(config, {"llama.cpp": Absent()}, IntentStore(config.data / "i.json"), Store(config.store))
    with pytest.raises(StartRefused, match="install it") as caught:
        made.start(order(serve(weights)), "k")
    assert (caught.value.failure.code, caught.value.failure.final) == ("engine_missing", False)


TWO = (CardReport(uuid="GPU-a", memory_total=80), CardReport(uuid="GPU-b", memory_total=80))


@pytest.mark.parametrize(
    ("engine", "cards", "there", "env"),
    [
        ("llama.cpp", (), TWO, {"CUDA_VISIBLE_DEVICES": ""}),  # on the processor: none, whatever the node has
        ("vllm", (), (), {"CUDA_VISIBLE_DEVICES": ""}),
        ("llama.cpp", ("GPU-b", "GPU-a"), TWO, {"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}),
        ("llama.cpp", ("GPU-b",), (), {"CUDA_VISIBLE_DEVICES": "GPU-b"}),  # the driver has not told its cards yet
        ("vllm", ("GPU-b", "GPU-a"), TWO, {"CUDA_VISIBLE_DEVICES": "1,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
    ],
)
def test_an_engine_sees_its_own_cards_only(
    weights: Path, engine: str, cards: tuple[str, ...], there: tuple[CardReport, ...], env: dict[str, str]
) -> None:
    assert visible(serve(weights, engine=engine, cards=cards), there) == env


def test_a_card_that_is_not_there_may_come_back_and_is_named(config: Config, weights: Path) -> None:
    made = starter(config)
    made.cards = lambda: TWO
    with pytest.raises(StartRefused, match="GPU-c") as caught:
        made.start(order(serve(weights, cards=("GPU-c",), card_memory=(40,))), "k")
    assert (caught.value.failure.code, caught.value.failure.final) == ("card_missing", False)


@pytest.mark.parametrize(
    ("engine", "used", "short"),
    [
        ("llama.cpp", None, False),  # not told
        ("llama.cpp", 40, False),
        ("llama.cpp", 44, False),  # a tenth is to spare
        ("llama.cpp", 45, True),
        ("vllm", 40, False),
        ("vllm", 41, True),  # it would not start
        ("llama.cpp", 100, True),  # more than there is
    ],
)
def test_f41_a_start_waits_until_its_cards_have_their_memory_back(
    config: Config, weights: Path, engine: str, used: int | None, short: bool
) -> None:
    there = CardReport(uuid="GPU-a", memory_total=80 * GIB, memory_used=None if used is None else used * GIB)
    wanted = serve(weights, engine=engine, cards=("GPU-a", "GPU-gone"), card_memory=(40 * GIB, 40 * GIB))
    if not short:
        room_on_cards(wanted, (there,))
        return
    made = Starter(config, {engine: LlamaCpp()}, IntentStore(config.data / "intents.json"), Store(config.store))
    made.cards = lambda: (there,)
    with pytest.raises(StartRefused, match=r"GPU-a has .* free and the engine may take 40\.0 GiB") as caught:
        made.start(order(wanted), "k")
    assert (caught.value.failure.code, caught.value.failure.final) == ("card_memory_taken", False)


def test_weights_of_the_store_are_found_there_and_their_use_is_noted(config: Config) -> None:
    content = {"m.gguf": b"GGUF", "mmproj-F16.gguf": b"eyes"}
    put(config.store, content)
    put(config.store, {"a.gguf": b"lora"}, version="ver_0000000002")
    os.utime(config.store / VERSION / "whole", (1.0, 1.0))
    wanted = Serve(
        engine="llama.cpp", model="m", weights=Weights(path="m.gguf", size=999, version=VERSION), projector="mmproj-F16.gguf",
        adapters=(
            AdapterFile(name="a", weights=Weights(path="a.gguf", version="ver_0000000002")),
            AdapterFile(name="b", weights=Weights(path="/own/b.gguf")),
        ),
    )  # fmt: skip
    placed = weights_of.placed(wanted, Store(config.store))
    files = config.store / VERSION / "files"
    assert (placed.weights.path, placed.weights.size) == (str(files / "m.gguf"), 999)
    assert placed.projector == str(files / "mmproj-F16.gguf")
    assert [item.weights.path for item in placed.adapters] == [
        str(config.store / "ver_0000000002" / "files" / "a.gguf"),
        "/own/b.gguf",
    ]
    assert weights_of.problem(replace(placed, adapters=placed.adapters[:1])) is None
    code, message = weights_of.problem(placed) or ("", "")
    assert code == "weights_missing"
    assert "The adapter b /own/b.gguf is not there" in message
    assert (config.store / VERSION / "whole").stat().st_mtime > 1.0
    argv = LlamaCpp().command(placed, port=1, threads=1).argv
    assert argv[argv.index("--mmproj") + 1] == str(files / "mmproj-F16.gguf")
    folder = weights_of.placed(
        replace(wanted, engine="vllm", weights=Weights(path="", version=VERSION)), Store(config.store)
    )
    assert Path(folder.weights.path) == files
    assert weights_of.problem(replace(folder, adapters=())) is None


@pytest.mark.parametrize(
    "wanted",
    [
        Weights(path="m.gguf", version="ver_9999999999"),
        Weights(path="other.gguf", version=VERSION),
        Weights(path="../manifest.json", version=VERSION),
        Weights(path="/etc/passwd", version=VERSION),
    ],
)
def test_weights_that_are_not_in_the_store_start_nothing(config: Config, wanted: Weights) -> None:
    put(config.store, {"m.gguf": b"GGUF"})
    with pytest.raises(StartRefused, match="fetched again") as caught:
        starter(config).start(order(Serve(engine="llama.cpp", model="m", weights=wanted)), "k")
    assert (caught.value.failure.code, caught.value.failure.final) == ("weights_missing", False)
