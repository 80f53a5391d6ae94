"""The command line and environment of an engine, from what the profile says. Pure; see tests for the tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from catalog.domain.engine_args import vet
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import GIB

DEFAULT_CONTEXT = 4096
"""Tokens per slot of a profile that names none. An engine never takes more than the model was trained for."""
DEFAULT_SLOTS = 4
CACHE_RAM_MIB = 256
"""llama.cpp's prompt cache in memory, of a profile without a reservation; with one, an eighth of it, at most this."""


@dataclass(frozen=True, kw_only=True)
class CardUse:
    """A card that an engine uses: bytes of it that are its own, of which `base` are for no layer, layers that it gets (0: not
    known), and bytes that the card has (0: not known)."""

    memory: int
    base: int = 0
    layers: int = 0
    total: int = 0


class Lora(NamedTuple):
    """An adapter that is loaded beside the model. `rank` 0: not known."""

    name: str
    path: str
    rank: int = 0


@dataclass(frozen=True, kw_only=True)
class Span:
    """Which part of a replica over several nodes an engine is. Rank 0 leads, and it alone answers clients.

    `master`: the leader's IP address on the fabric, `port`: where its parts meet; `address`: of this node on the fabric, and
    `interface` the network interface that has it ("": not known)."""

    nodes: int
    rank: int
    master: str
    port: int
    address: str
    interface: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What to run. 0 and "" mean the defaults above; `port` and `threads` are the node's to choose.

    `cards`: in the order in which the engine sees them; none: it runs on the processor, whatever the node has.
    """

    model: str
    weights: str
    weights_size: int = 0  # bytes
    port: int
    threads: int
    context: int = 0
    slots: int = 0
    memory: int = 0
    embeddings: bool = False
    pooling: str = ""
    cards: tuple[CardUse, ...] = ()
    adapters: tuple[Lora, ...] = ()
    projector: str = ""  # path of what lets it see or hear
    span: Span | None = None  # None: it runs on one node
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def slot_context(self) -> int:
        return self.context or DEFAULT_CONTEXT

    @property
    def slot_count(self) -> int:
        return self.slots or DEFAULT_SLOTS


@dataclass(frozen=True, kw_only=True)
class Command:
    """`env` is added to the cleaned environment of the child; no secret stands in either."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


def command(engine: str, program: tuple[str, ...], run: Run, *, launcher: bool = False) -> Command:
    """The command that runs `run` with `program`, the beginning of the command line.

    launcher: `program` is our own launcher of the wheel, not a llama-server binary.
    Raises Refused: `engine_args_refused` if the profile's args or env do not pass the vetting; `card_memory_unknown`
    if vLLM is to use a part of a card whose size the driver does not tell.
    """
    vetted = vet(engine, run.args, run.env)
    if vetted.refusals:
        raise Refused(
            Kind.INVALID,
            "engine_args_refused",
            " ".join(refusal.message for refusal in vetted.refusals),
            extra={"refusals": [vars(refusal) for refusal in vetted.refusals]},
        )
    if not run.weights.startswith("/") or not run.weights.isprintable():
        # an absolute path can be neither a flag nor a repository's name, which an engine would download
        raise Refused(
            Kind.INVALID, "weights_path", f"The weights' path {run.weights!r} is not absolute: name it from /."
        )
    if run.projector and (not run.projector.startswith("/") or not run.projector.isprintable()):
        text = f"The projector's path {run.projector[:200]!r} is not absolute: name it from /."
        raise Refused(Kind.INVALID, "weights_path", text)
    for lora in run.adapters:
        # llama-server reads a comma as the beginning of another file
        if not lora.path.startswith("/") or not lora.path.isprintable() or "," in lora.path or "=" in lora.name:
            text = f"The path {lora.path[:200]!r} of the adapter {lora.name[:80]} is not absolute, or has a comma in it: move the file."
            raise Refused(Kind.INVALID, "weights_path", text)
    if not run.model.isprintable() or run.model[:1] in ("", "-") or run.pooling[:1] == "-":
        raise Refused(
            Kind.INVALID, "engine_args_refused", f"The name {run.model[:80]!r} could be read as a flag: choose another."
        )
    ours = _llama_cpp(run, launcher) if engine == "llama.cpp" else _vllm(run)
    own = _vllm_on_processor(run) if engine == "vllm" and not run.cards else {}
    if engine == "vllm" and run.span is not None:
        own = _between_nodes(run.span)
    return Command(argv=(*program, *ours, *vetted.argv), env={**own, **vetted.env})


def _llama_cpp(run: Run, launcher: bool) -> tuple[str, ...]:
    cache = min(CACHE_RAM_MIB, run.memory // 8 >> 20) if run.memory else CACHE_RAM_MIB
    argv = ["--model", run.weights, "--alias", run.model, "--port", str(run.port)]
    # llama.cpp's context is the sum over the slots
    argv += ["--ctx-size", str(run.slot_context * run.slot_count), "--parallel", str(run.slot_count)]
    argv += ["--threads", str(run.threads), "--cache-ram", str(cache), *_layers(run, launcher)]
    if run.embeddings:
        argv += ["--embeddings"]
        if run.pooling:
            argv += ["--pooling", run.pooling]
    if run.projector:
        argv += ["--mmproj", run.projector]
        if not run.cards and not launcher:
            argv += ["--no-mmproj-offload"]
    for lora in run.adapters:
        argv += ["--lora", lora.path]
    if run.adapters:
        argv += ["--lora-init-without-apply"]
    if not launcher:  # what the launcher sets by itself
        argv += ["--host", "127.0.0.1", "--metrics", "--fit", "off", "--offline", "--no-ui", "--no-kv-unified"]
    return tuple(argv)


ALL_LAYERS = 999
"""More than any model has: llama.cpp then takes all of them, with the output layer."""


def _layers(run: Run, launcher: bool) -> list[str]:
    """Where the layers lie: all on the cards, so many on each, or in proportion to what each of them gives, or none.
    `--fit off` leaves it so; else llama.cpp would move layers by itself to what it finds free at that moment.

    llama.cpp gives layer i of n (the output layer counts) to the first card whose part of the sum of `--tensor-split`, with
    those before it, is more than i / n: numbers of layers that add up to n come out as they are, bytes are rounded.
    """
    if not run.cards:
        # a build for other accelerators than CUDA is told so too: no variable hides those from it
        return ["--n-gpu-layers", "0", *([] if launcher else ["--device", "none"])]
    argv = ["--n-gpu-layers", str(ALL_LAYERS), "--main-gpu", "0"]
    if len(run.cards) == 1:
        return [*argv, "--split-mode", "none"]
    counts = [card.layers for card in run.cards]
    if not all(counts):
        counts = [max(0, card.memory - card.base) >> 20 for card in run.cards]
    shares = ",".join(map(str, counts))
    return [*argv, "--split-mode", "layer", "--tensor-split", shares]


def _of_card(run: Run) -> str:
    """The share of each card that vLLM may take, rounded down: it counts all of the card, whoever else uses it, and does
    not start where less is free."""
    if any(not card.total for card in run.cards):
        text = "vLLM takes a share of a card's memory, and the driver does not tell how much this card has."
        raise Refused(Kind.INVALID, "card_memory_unknown", text)
    return f"{min(card.memory * 10_000 // card.total for card in run.cards) / 10_000:.4f}"


LORA_RANKS = (16, 32, 64, 128, 256, 320, 512)
"""Largest ranks that vLLM can be told to keep room for, from its default on. Source: vLLM config/lora.py."""
MOST_LORAS = 8
"""Adapters that vLLM computes with at once, each in room of its own; it loads further ones in turn."""
VLLM_PROCESS = 2 * GIB
"""Of a vLLM engine on a processor, for neither weights nor cache."""


def _vllm_on_processor(run: Run) -> dict[str, str]:
    """Its threads, and how much of its memory is for the cache: whole GiB, at least one; without a reservation vLLM's own
    default. Source: vLLM docs, CPU, related runtime environment variables."""
    # by itself it binds a thread to each core of the machine, whatever the number of threads says
    found = {"OMP_NUM_THREADS": str(run.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if run.memory:
        found["VLLM_CPU_KVCACHE_SPACE"] = str(max(1, (run.memory - run.weights_size - VLLM_PROCESS) // GIB))
    return found


def _vllm(run: Run) -> tuple[str, ...]:
    argv = [run.weights, "--served-model-name", run.model, "--host", "127.0.0.1", "--port", str(run.port)]
    if run.context:
        argv += ["--max-model-len", str(run.context)]
    if run.slots:
        argv += ["--max-num-seqs", str(run.slots)]
    if run.cards:
        argv += ["--tensor-parallel-size", str(len(run.cards)), "--gpu-memory-utilization", _of_card(run)]
    if run.span is not None:
        argv += _part_of(run.span)
    if run.embeddings:
        argv += ["--runner", "pooling"]
    if run.adapters:
        rank = max(lora.rank for lora in run.adapters)
        argv += ["--enable-lora", "--max-loras", str(min(len(run.adapters), MOST_LORAS))]
        argv += ["--max-lora-rank", str(next((size for size in LORA_RANKS if size >= rank), LORA_RANKS[-1]))]
        argv += ["--lora-modules", *(f"{lora.name}={lora.path}" for lora in run.adapters)]
    return tuple(argv)


def _part_of(span: Span) -> list[str]:
    """One engine over several nodes without Ray: each node runs `vllm serve` with the same model and its own rank, one stage of the
    pipeline on each; the parts meet at the leader's address. Only the leader has an HTTP server, the others are headless.

    Since vLLM 0.12. Sources: vLLM pull request 23691 (multi-node mp executor); vLLM docs, serving/parallelism_scaling, "Running
    vLLM with MultiProcessing"; vllm/config/parallel.py (master_addr, master_port, node_rank, nnodes) and
    vllm/entrypoints/cli/serve.py (run_headless: a node of rank > 0 runs workers only).
    """
    argv = [
        "--pipeline-parallel-size",
        str(span.nodes),
        "--distributed-executor-backend",
        "mp",
        "--nnodes",
        str(span.nodes),
    ]
    argv += ["--node-rank", str(span.rank), "--master-addr", span.master, "--master-port", str(span.port)]
    return argv if span.rank == 0 else [*argv, "--headless"]


def _between_nodes(span: Span) -> dict[str, str]:
    """The network that the parts talk over: without these vLLM, gloo and NCCL choose by the host's name, which on many machines
    is loopback. Sources: vLLM docs, security (VLLM_HOST_IP); torch.distributed docs, common environment variables; NCCL docs."""
    found = {"VLLM_HOST_IP": span.address}
    if span.interface:
        found |= {"GLOO_SOCKET_IFNAME": span.interface, "NCCL_SOCKET_IFNAME": span.interface}
    return found
