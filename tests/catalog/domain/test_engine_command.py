"""Command lines by tables: what is said, in which order, and what stops it."""

from __future__ import annotations

import pytest

from catalog.domain.engine_command import CardUse, Run, Span, command
from llmgw_site.lib.errors import Refused

RUN = Run(model="m", weights="/w/m.gguf", port=4000, threads=3)


def run(**changes: object) -> Run:
    return Run(**{**vars(RUN), **changes})  # type: ignore[arg-type]


GIB = 1 << 30
NO_CARD = ("--n-gpu-layers", "0")
LAUNCHER = ("--model", "/w/m.gguf", "--alias", "m", "--port", "4000")
TABLE = [
    (
        "llama.cpp", True, RUN,
        (*LAUNCHER, "--ctx-size", "16384", "--parallel", "4", "--threads", "3", "--cache-ram", "256", *NO_CARD),
    ),
    (
        "llama.cpp", True, run(context=1000, slots=3, memory=1 << 30, args=("-b", "64")),
        (*LAUNCHER, "--ctx-size", "3000", "--parallel", "3", "--threads", "3", "--cache-ram", "128", *NO_CARD, "--batch-size", "64"),
    ),
    (
        "llama.cpp", True, run(embeddings=True, pooling="mean", slots=1, context=512),
        (*LAUNCHER, "--ctx-size", "512", "--parallel", "1", "--threads", "3", "--cache-ram", "256", *NO_CARD, "--embeddings", "--pooling", "mean"),
    ),
    (
        "llama.cpp", False, run(context=512, slots=2),
        (*LAUNCHER, "--ctx-size", "1024", "--parallel", "2", "--threads", "3", "--cache-ram", "256", *NO_CARD, "--device", "none", "--host", "127.0.0.1",
         "--metrics", "--fit", "off", "--offline", "--no-ui", "--no-kv-unified"),
    ),
    (  # no card of the node gets what the processor's engine sees with
        "llama.cpp", False, run(context=512, slots=2, projector="/w/mmproj.gguf"),
        (*LAUNCHER, "--ctx-size", "1024", "--parallel", "2", "--threads", "3", "--cache-ram", "256", *NO_CARD, "--device", "none",
         "--mmproj", "/w/mmproj.gguf", "--no-mmproj-offload", "--host", "127.0.0.1",
         "--metrics", "--fit", "off", "--offline", "--no-ui", "--no-kv-unified"),
    ),
    (
        "llama.cpp", True, run(cards=(CardUse(memory=10 * GIB, total=24 * GIB),)),
        (*LAUNCHER, "--ctx-size", "16384", "--parallel", "4", "--threads", "3", "--cache-ram", "256", "--n-gpu-layers", "999",
         "--main-gpu", "0", "--split-mode", "none"),
    ),
    (
        "llama.cpp", False, run(cards=(CardUse(memory=21 * GIB, base=GIB), CardUse(memory=16 * GIB, base=GIB), CardUse(memory=GIB, base=GIB))),
        (*LAUNCHER, "--ctx-size", "16384", "--parallel", "4", "--threads", "3", "--cache-ram", "256", "--n-gpu-layers", "999",
         "--main-gpu", "0", "--split-mode", "layer", "--tensor-split", "20480,15360,0", "--host", "127.0.0.1", "--metrics",
         "--fit", "off", "--offline", "--no-ui", "--no-kv-unified"),
    ),
    (  # numbers of layers come out as they are, whatever they weigh
        "llama.cpp", True, run(cards=(CardUse(memory=21 * GIB, layers=24), CardUse(memory=9 * GIB, layers=3))),
        (*LAUNCHER, "--ctx-size", "16384", "--parallel", "4", "--threads", "3", "--cache-ram", "256", "--n-gpu-layers", "999",
         "--main-gpu", "0", "--split-mode", "layer", "--tensor-split", "24,3"),
    ),
    (
        "vllm", False, run(cards=(CardUse(memory=60 * GIB, total=80 * GIB), CardUse(memory=60 * GIB, total=96 * GIB))),
        ("/w/m.gguf", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "4000", "--tensor-parallel-size", "2",
         "--gpu-memory-utilization", "0.6250"),
    ),
    (
        "vllm", False, run(context=8192, slots=16, weights="/w/qwen", args=("--dtype", "bfloat16")),
        ("/w/qwen", "--served-model-name", "m", "--host", "127.0.0.1", "--port", "4000", "--max-model-len", "8192",
         "--max-num-seqs", "16", "--dtype", "bfloat16"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "launcher", "wanted", "argv"), TABLE)
def test_the_command_line_of_an_engine(engine: str, launcher: bool, wanted: Run, argv: tuple[str, ...]) -> None:
    made = command(engine, ("prog",), wanted, launcher=launcher)
    assert made.argv == ("prog", *argv)
    threads = {"OMP_NUM_THREADS": "3", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    assert made.env == (threads if engine == "vllm" and not wanted.cards else {})


FREE = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.mark.parametrize(
    ("changes", "env"),
    [
        (
            {"memory": 20 * GIB, "weights_size": 6 * GIB},
            {"OMP_NUM_THREADS": "3", "VLLM_CPU_KVCACHE_SPACE": "12"} | FREE,
        ),
        ({"memory": GIB}, {"OMP_NUM_THREADS": "3", "VLLM_CPU_KVCACHE_SPACE": "1"} | FREE),
        ({"env": {"OMP_NUM_THREADS": "8"}}, {"OMP_NUM_THREADS": "8"} | FREE),
        ({"memory": 20 * GIB, "cards": (CardUse(memory=GIB, total=GIB),)}, {}),
    ],
)
def test_vllm_on_a_processor_gets_its_threads_and_the_room_for_its_cache(
    changes: dict[str, object], env: dict[str, str]
) -> None:
    assert command("vllm", ("vllm", "serve"), run(**changes)).env == env


def test_a_llama_arg_variable_becomes_its_flag_and_tuning_stays_a_variable() -> None:
    made = command("llama.cpp", ("p",), run(env={"LLAMA_ARG_TOP_K": "7", "OMP_PROC_BIND": "close"}), launcher=True)
    assert made.argv[-2:] == ("--top-k", "7")
    assert made.env == {"OMP_PROC_BIND": "close"}


def test_hostile_arguments_stop_the_command_with_every_reason() -> None:
    with pytest.raises(Refused) as caught:
        command("llama.cpp", ("p",), run(args=("--tools", "all"), env={"LD_PRELOAD": "/x"}))
    assert caught.value.code == "engine_args_refused"
    assert "--tools" in caught.value.message
    assert "LD_PRELOAD" in caught.value.message


@pytest.mark.parametrize("weights", ["org/model", "", "-m", "w.gguf", "/a\nb"])
def test_weights_that_are_no_absolute_path_are_refused(weights: str) -> None:
    with pytest.raises(Refused, match="path"):
        command("llama.cpp", ("p",), run(weights=weights))


@pytest.mark.parametrize(
    "changes", [{"model": "--trust-remote-code"}, {"model": ""}, {"model": "a\nb"}, {"pooling": "-x"}]
)
def test_a_name_that_could_be_read_as_a_flag_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        command("vllm", ("vllm", "serve"), run(**changes))
    assert refused.value.code == "engine_args_refused"


def test_a_share_of_a_card_of_unknown_size_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        command("vllm", ("vllm", "serve"), run(cards=(CardUse(memory=GIB),)))
    assert refused.value.code == "card_memory_unknown"


@pytest.mark.parametrize("flag", ["-ngl", "--tensor-split", "-sm", "--device", "--fit"])
def test_a_profile_cannot_move_layers_behind_the_plans_back(flag: str) -> None:
    with pytest.raises(Refused, match="set by llmgw itself"):
        command("llama.cpp", ("p",), run(args=(flag, "1")))


SPAN = ("--pipeline-parallel-size", "2", "--distributed-executor-backend", "mp", "--nnodes", "2", "--node-rank")


@pytest.mark.parametrize(
    ("rank", "end"),
    [
        (0, ("0", "--master-addr", "10.9.0.1", "--master-port", "23007")),
        (1, ("1", "--master-addr", "10.9.0.1", "--master-port", "23007", "--headless")),
    ],
)
def test_each_part_of_an_engine_over_several_nodes_is_told_its_rank_and_where_they_meet(
    rank: int, end: tuple[str, ...]
) -> None:
    span = Span(nodes=2, rank=rank, master="10.9.0.1", port=23007, address=f"10.9.0.{rank + 1}", interface="ib0")
    made = command("vllm", ("vllm", "serve"), run(weights="/w", cards=(CardUse(memory=GIB, total=2 * GIB),), span=span))
    assert made.argv[-len(SPAN + end) :] == SPAN + end
    assert made.argv[made.argv.index("--tensor-parallel-size") + 1] == "1"
    network = {"GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "ib0"}
    assert made.env == {"VLLM_HOST_IP": f"10.9.0.{rank + 1}", **network}


def test_a_profile_may_name_the_interface_of_the_parts_itself() -> None:
    span = Span(nodes=2, rank=0, master="10.9.0.1", port=1, address="10.9.0.1")
    card = CardUse(memory=GIB, total=2 * GIB)
    made = command("vllm", ("p",), run(weights="/w", cards=(card,), span=span, env={"NCCL_SOCKET_IFNAME": "ib1"}))
    assert made.env == {"VLLM_HOST_IP": "10.9.0.1", "NCCL_SOCKET_IFNAME": "ib1"}


@pytest.mark.parametrize(
    "flag", ["--nnodes", "-n", "--node-rank", "-r", "--master-addr", "--master-port", "--headless", "-pp"]
)
def test_a_profile_cannot_join_other_engines(flag: str) -> None:
    with pytest.raises(Refused, match="set by llmgw itself"):
        command("vllm", ("p",), run(weights="/w", args=(flag, "1")))
