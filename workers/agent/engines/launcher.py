"""The llama.cpp engine of the `xllamacpp` wheel as a program: llama-server's flags in, its HTTP server out.

    LLMGW_ENGINE_KEY=... python -m workers.agent.engines.launcher -m FILE --port N -c TOKENS -np SLOTS -t THREADS \
        --cache-ram MIB [any flag of catalog.domain.engine_flags.LLAMA_CPP]

It stays in the foreground until SIGTERM. Every flag that a profile may name is understood; nothing else is, and flags
are never abbreviated. The port is bound on loopback only: the wheel's server has no TLS and reflects any origin.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

from catalog.domain.engine_flags import LLAMA_CPP, Flag, ValueKind

KEY_VARIABLE = "LLMGW_ENGINE_KEY"
PR_SET_PDEATHSIG = 1  # prctl(2)


def destination(flag: Flag) -> str:
    return flag.name.lstrip("-").replace("-", "_")


def parser() -> argparse.ArgumentParser:
    """The flags that the agent sets, then those of the allowlist."""
    # allow_abbrev would let `--chat-template-f` pass for a flag that the vetting never saw
    out = argparse.ArgumentParser(prog="launcher", allow_abbrev=False, description=(__doc__ or "").splitlines()[0])
    add = out.add_argument
    add("-m", "--model", required=True, metavar="FILE")
    add("-a", "--alias", required=True, help="name that the engine answers under")
    add("--port", type=int, required=True)
    add("-c", "--ctx-size", type=int, required=True, help="tokens of all slots together; 0: the model's own")
    add("-np", "--parallel", type=int, required=True, help="slots")
    add("-t", "--threads", type=int, required=True)
    add("--threads-http", type=int, default=-1)
    add("--cache-ram", type=int, required=True, metavar="MIB", help="prompt cache in memory")
    add("--n-gpu-layers", type=int, default=0)
    add("--main-gpu", type=int, default=0)
    add("--split-mode", choices=("none", "layer"), default="none")
    add("--tensor-split", type=_proportions, default=[], help="of each card, such as 3,1")
    add("--mmproj", default="", metavar="FILE", help="projector: lets the model see or hear")
    add("--lora", action="append", default=[], metavar="FILE", help="adapter to load; may be repeated")
    add("--lora-init-without-apply", action="store_true", help="loaded adapters apply where a request names them")
    add("--timeout", type=int, default=3600, help="seconds that the server waits for a client to read or write")
    add("--embeddings", action="store_true")
    add("--pooling", choices=("none", "mean", "cls", "last", "rank"))
    add("--die-with-parent", action="store_true", help="tests only: in production an engine outlives the agent")
    readers: dict[ValueKind, Any] = {ValueKind.INT: int, ValueKind.FLOAT: float, ValueKind.JSON: json.loads}
    for flag in LLAMA_CPP:
        names = (flag.name, *flag.aliases)
        if flag.kind is ValueKind.SWITCH:
            add(*names, action="store_true", default=None)
        elif flag.kind is ValueKind.PAIR:
            add(*names, action=argparse.BooleanOptionalAction, default=None)
        else:
            add(*names, type=readers.get(flag.kind, str), choices=flag.choices or None)
    return out


def _proportions(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def params(o: argparse.Namespace, *, key: str) -> Any:
    """The wheel's CommonParams for these options."""
    import xllamacpp as x

    p = x.CommonParams()
    p.model.path, p.model_alias = o.model, {o.alias}
    p.hostnames, p.port, p.api_keys = ["127.0.0.1"], o.port, [key]
    # n_ctx is the sum over the slots, unless the cache is "unified", where one slot may starve the others
    p.n_ctx, p.n_parallel, p.kv_unified = o.ctx_size, o.parallel, False
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = o.threads
    p.n_threads_http = o.threads_http
    p.cache_ram_mib = o.cache_ram  # the wheel's default takes up to 8 GiB that nobody planned
    p.fit_params = False  # would shrink the context and move layers by itself
    p.n_gpu_layers, p.main_gpu = o.n_gpu_layers, o.main_gpu
    p.split_mode = getattr(x.llama_split_mode, f"LLAMA_SPLIT_MODE_{o.split_mode.upper()}")
    if o.tensor_split:
        p.tensor_split = [*o.tensor_split, *[0.0] * (len(p.tensor_split) - len(o.tensor_split))]
    if o.mmproj:
        p.mmproj.path = o.mmproj
        p.mmproj_use_gpu = o.n_gpu_layers > 0  # else it takes memory of cards that nobody planned
    # films would be given to a player found on PATH, and playlists name addresses that it reads by itself
    p.video_ffmpeg_bin_dir = os.devnull
    if o.lora:
        scale = 0.0 if o.lora_init_without_apply else 1.0  # the wheel's own flag leaves it to the first request
        p.lora_adapters = [x.CommonAdapterLoraInfo(path, scale) for path in o.lora]
        p.lora_init_without_apply = o.lora_init_without_apply
    p.offline, p.ui = True, False
    p.endpoint_metrics, p.endpoint_slots, p.endpoint_props = True, True, False
    p.timeout_read = p.timeout_write = o.timeout
    if o.embeddings:
        p.embedding = True
        # an embedding is computed in one batch: an input longer than it would be refused by the engine
        p.n_batch = p.n_ubatch = max(p.n_batch, min(o.ctx_size // o.parallel, 8192))
    if o.pooling:
        p.pooling_type = getattr(x.llama_pooling_type, f"LLAMA_POOLING_TYPE_{o.pooling.upper()}")
    for flag in LLAMA_CPP:
        value = getattr(o, destination(flag))
        if value is not None:
            APPLY[flag.name](x, p, value)
    return p


Apply = Callable[[Any, Any, Any], None]


def _to(path: str) -> Apply:
    """Set the attribute at this dotted path."""
    *owners, name = path.split(".")

    def apply(x: Any, p: Any, value: Any) -> None:
        for owner in owners:
            p = getattr(p, owner)
        setattr(p, name, value)

    return apply


def _enum(path: str, enum: str, prefix: str, words: Mapping[str, str] | None = None) -> Apply:
    """Set the attribute to the member of the wheel's enum that the word names."""
    write = _to(path)

    def apply(x: Any, p: Any, value: str) -> None:
        word = (words or {}).get(value, value).replace("-", "_")
        write(x, p, next(m for m in getattr(x, enum) if m.name.upper() == f"{prefix}{word}".upper()))

    return apply


def _sampling(name: str, configured: str = "") -> Apply:
    """Set a sampling default, and mark it as the user's: defaults in the GGUF's own header would win otherwise."""

    def apply(x: Any, p: Any, value: Any) -> None:
        setattr(p.sampling, name, value)
        if configured:
            bit = getattr(x.common_params_sampling_config, f"COMMON_PARAMS_SAMPLING_CONFIG_{configured}")
            p.sampling.user_sampling_config |= int(bit.value)

    return apply


def _template_kwargs(x: Any, p: Any, value: dict[str, Any]) -> None:
    p.default_template_kwargs = {name: json.dumps(item) for name, item in value.items()}


def _rope_scale(x: Any, p: Any, value: float) -> None:
    p.rope_freq_scale = 1 / value


def _speculative(x: Any, p: Any, value: str) -> None:
    name = f"COMMON_SPECULATIVE_TYPE_{value.replace('-', '_').upper()}"
    p.speculative.types = [getattr(x.common_speculative_type, name)]


def _reasoning_budget(x: Any, p: Any, value: int) -> None:
    p.sampling.reasoning_budget_tokens = value
    if value == 0:
        p.enable_reasoning = 0


def _seed(x: Any, p: Any, value: int) -> None:
    p.sampling.seed = value % 2**32  # -1 is "a random one"


_CACHE = ("ggml_type", "GGML_TYPE_")
APPLY: dict[str, Apply] = {
    "--batch-size": _to("n_batch"),
    "--ubatch-size": _to("n_ubatch"),
    "--threads-batch": _to("cpuparams_batch.n_threads"),
    "--flash-attn": _enum(
        "flash_attn_type", "llama_flash_attn_type", "LLAMA_FLASH_ATTN_TYPE_", {"on": "enabled", "off": "disabled"}
    ),
    "--cache-type-k": _enum("cache_type_k", *_CACHE),
    "--cache-type-v": _enum("cache_type_v", *_CACHE),
    "--load-mode": _enum("load_mode", "llama_load_mode", "LLAMA_LOAD_MODE_", {"dio": "direct_io"}),
    "--swa-full": _to("swa_full"),
    "--context-shift": _to("ctx_shift"),
    "--cont-batching": _to("cont_batching"),
    "--cache-prompt": _to("cache_prompt"),
    "--cache-reuse": _to("n_cache_reuse"),
    "--slot-prompt-similarity": _to("slot_prompt_similarity"),
    "--keep": _to("n_keep"),
    "--warmup": _to("warmup"),
    "--check-tensors": _to("check_tensors"),
    "--jinja": _to("use_jinja"),
    "--chat-template": _to("chat_template"),
    "--chat-template-kwargs": _template_kwargs,
    "--reasoning-format": _enum("reasoning_format", "common_reasoning_format", "COMMON_REASONING_FORMAT_"),
    "--reasoning-budget": _reasoning_budget,
    "--prefill-assistant": _to("prefill_assistant"),
    "--predict": _to("n_predict"),
    "--seed": _seed,
    "--temp": _sampling("temp", "TEMP"),
    "--top-k": _sampling("top_k", "TOP_K"),
    "--top-p": _sampling("top_p", "TOP_P"),
    "--min-p": _sampling("min_p", "MIN_P"),
    "--repeat-last-n": _sampling("penalty_last_n", "PENALTY_LAST_N"),
    "--repeat-penalty": _sampling("penalty_repeat", "PENALTY_REPEAT"),
    "--presence-penalty": _sampling("penalty_present"),
    "--frequency-penalty": _sampling("penalty_freq"),
    "--rope-scaling": _enum("rope_scaling_type", "llama_rope_scaling_type", "LLAMA_ROPE_SCALING_TYPE_"),
    "--rope-scale": _rope_scale,
    "--rope-freq-base": _to("rope_freq_base"),
    "--rope-freq-scale": _to("rope_freq_scale"),
    "--yarn-orig-ctx": _to("yarn_orig_ctx"),
    "--yarn-ext-factor": _to("yarn_ext_factor"),
    "--yarn-attn-factor": _to("yarn_attn_factor"),
    "--yarn-beta-slow": _to("yarn_beta_slow"),
    "--yarn-beta-fast": _to("yarn_beta_fast"),
    "--spec-type": _speculative,
    "--spec-ngram-mod-n-match": _to("speculative.ngram_mod.n_match"),
    "--spec-ngram-mod-n-min": _to("speculative.ngram_mod.n_min"),
    "--spec-ngram-mod-n-max": _to("speculative.ngram_mod.n_max"),
    "--spec-ngram-simple-size-n": _to("speculative.ngram_simple.size_n"),
    "--spec-ngram-simple-size-m": _to("speculative.ngram_simple.size_m"),
    "--spec-ngram-simple-min-hits": _to("speculative.ngram_simple.min_hits"),
    "--embd-normalize": _to("embd_normalize"),
}
"""How each allowed flag reaches the wheel; a test holds this table against the allowlist."""


ACCELERATORS = frozenset({"GPU", "IGPU"})
"""Types of the wheel's devices that layers can be put on, by the end of their names."""


def lacks_cards(o: argparse.Namespace, types: Iterable[str]) -> str:
    """Why layers cannot lie on the cards that were chosen; empty if they can, or lie on none. `types`: of the wheel's
    devices. llama.cpp would run on the processor without a word, in memory that nobody planned."""
    wanted = max(1, len(o.tensor_split)) if o.n_gpu_layers else 0
    seen = sum(name.rpartition("_")[2] in ACCELERATORS for name in types)
    if seen >= wanted:
        return ""
    cards = "1 card" if wanted == 1 else f"{wanted} cards"
    return (
        f"the engine is to use {cards} and its xllamacpp sees {seen}: install a build of it for this node's accelerators, "
        "and see whether their driver works (nvidia-smi)"
    )


def main() -> NoReturn:
    options = parser().parse_args()
    key = os.environ.pop(KEY_VARIABLE, "")
    if not key:
        sys.exit(f"launcher: {KEY_VARIABLE} is not set: an engine without a key would answer anybody on this machine")
    if options.die_with_parent:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in (signal.SIGTERM, signal.SIGINT):
        # At once, from the handler: the server's destructor waits for streams without end, and waking another
        # thread from a handler (Event.set) can deadlock with a second signal.
        signal.signal(number, lambda *_: os._exit(0))

    import xllamacpp

    if options.n_gpu_layers and (why := lacks_cards(options, [d["type"].name for d in xllamacpp.get_device_info()])):
        sys.exit(f"launcher: error: {why}")
    server = xllamacpp.Server(params(options, key=key))
    sys.stdout.write(f"listening {server.listening_address}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
