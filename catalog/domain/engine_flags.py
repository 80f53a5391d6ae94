"""What a profile may say to an engine: one table per engine, read by the vetting and by our llama.cpp launcher.

A flag that is not in `LLAMA_CPP` or `VLLM` is refused. `SET_BY_LLMGW` and `DANGEROUS` only make that refusal say more.
Sources: llama.cpp `tools/server/README.md` and `common/arg.cpp`; vLLM `docs/usage/security.md`, `vllm serve --help`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class ValueKind(StrEnum):
    SWITCH = "switch"  # no value: present or absent
    PAIR = "pair"  # no value: --x or --no-x
    INT = "int"
    FLOAT = "float"
    CHOICE = "choice"
    NAME = "name"  # a built-in's name: letters, digits, - _ . only, so never a path or a template
    JSON = "json"  # an object of scalars, `choices` (if any) its allowed keys


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One allowed flag. `low` and `high` bound numbers, both inclusive."""

    name: str  # long form with its dashes; the form that the engine is given
    kind: ValueKind
    aliases: tuple[str, ...] = ()
    env: str = ""  # the LLAMA_ARG_* variable that means the same
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()

    @property
    def takes_value(self) -> bool:
        return self.kind not in (ValueKind.SWITCH, ValueKind.PAIR)


def _switch(name: str, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.SWITCH, env=env, aliases=aliases)


def _pair(name: str, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.PAIR, env=env, aliases=aliases)


def _int(name: str, low: int, high: int, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.INT, low=low, high=high, env=env, aliases=aliases)


def _float(name: str, low: float, high: float, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.FLOAT, low=low, high=high, env=env, aliases=aliases)


def _choice(name: str, choices: str, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.CHOICE, choices=tuple(choices.split()), env=env, aliases=aliases)


def _name(name: str, env: str = "", *aliases: str) -> Flag:
    return Flag(name=name, kind=ValueKind.NAME, env=env, aliases=aliases)


def _json(name: str, env: str = "", keys: str = "") -> Flag:
    return Flag(name=name, kind=ValueKind.JSON, env=env, choices=tuple(keys.split()))


MANY = 1_000_000
CACHE_TYPES = "f32 f16 bf16 q8_0 q4_0 q4_1 iq4_nl q5_0 q5_1"

LLAMA_CPP: tuple[Flag, ...] = (
    # batches, cache, loading
    _int("--batch-size", 1, 65536, "LLAMA_ARG_BATCH", "-b"),
    _int("--ubatch-size", 1, 65536, "LLAMA_ARG_UBATCH", "-ub"),
    _int("--threads-batch", 1, 1024, "", "-tb"),
    _choice("--flash-attn", "on off auto", "LLAMA_ARG_FLASH_ATTN", "-fa"),
    _choice("--cache-type-k", CACHE_TYPES, "LLAMA_ARG_CACHE_TYPE_K", "-ctk"),
    _choice("--cache-type-v", CACHE_TYPES, "LLAMA_ARG_CACHE_TYPE_V", "-ctv"),
    _choice("--load-mode", "auto none mmap dio", "LLAMA_ARG_LOAD_MODE", "-lm"),  # mlock would pin the node's memory
    _switch("--swa-full", "LLAMA_ARG_SWA_FULL"),
    _pair("--context-shift", "LLAMA_ARG_CONTEXT_SHIFT"),
    _pair("--cont-batching", "LLAMA_ARG_CONT_BATCHING"),
    _pair("--cache-prompt", "LLAMA_ARG_CACHE_PROMPT"),
    _int("--cache-reuse", 0, 65536, "LLAMA_ARG_CACHE_REUSE"),
    _float("--slot-prompt-similarity", 0, 1, "", "-sps"),
    _int("--keep", -1, MANY),
    _pair("--warmup"),
    _switch("--check-tensors"),
    # chat
    _pair("--jinja", "LLAMA_ARG_JINJA"),
    _name("--chat-template", "LLAMA_ARG_CHAT_TEMPLATE"),
    _json("--chat-template-kwargs", "LLAMA_ARG_CHAT_TEMPLATE_KWARGS"),
    _choice("--reasoning-format", "none auto deepseek deepseek-legacy", "LLAMA_ARG_THINK"),
    _int("--reasoning-budget", -1, MANY, "LLAMA_ARG_THINK_BUDGET"),
    _pair("--prefill-assistant", "LLAMA_ARG_PREFILL_ASSISTANT"),
    # defaults of sampling
    _int("--predict", -1, MANY, "LLAMA_ARG_N_PREDICT", "-n", "--n-predict"),
    _int("--seed", -1, 2**32 - 1, "", "-s"),
    _float("--temp", 0, 10, "LLAMA_ARG_TEMPERATURE", "--temperature"),
    _int("--top-k", 0, MANY, "LLAMA_ARG_TOP_K"),
    _float("--top-p", 0, 1, "LLAMA_ARG_TOP_P"),
    _float("--min-p", 0, 1, "LLAMA_ARG_MIN_P"),
    _int("--repeat-last-n", -1, MANY),
    _float("--repeat-penalty", 0, 10, "LLAMA_ARG_REPEAT_PENALTY"),
    _float("--presence-penalty", -10, 10, "LLAMA_ARG_PRESENCE_PENALTY"),
    _float("--frequency-penalty", -10, 10, "LLAMA_ARG_FREQUENCY_PENALTY"),
    # positions beyond the model's own context
    _choice("--rope-scaling", "none linear yarn", "LLAMA_ARG_ROPE_SCALING_TYPE"),
    _float("--rope-scale", 0.001, 1000, "LLAMA_ARG_ROPE_SCALE"),
    _float("--rope-freq-base", 0, 1e10, "LLAMA_ARG_ROPE_FREQ_BASE"),
    _float("--rope-freq-scale", 0, 1000, "LLAMA_ARG_ROPE_FREQ_SCALE"),
    _int("--yarn-orig-ctx", 0, 2**24, "LLAMA_ARG_YARN_ORIG_CTX"),
    _float("--yarn-ext-factor", -1, 1000, "LLAMA_ARG_YARN_EXT_FACTOR"),
    _float("--yarn-attn-factor", -1, 1000, "LLAMA_ARG_YARN_ATTN_FACTOR"),
    _float("--yarn-beta-slow", -1, 1000, "LLAMA_ARG_YARN_BETA_SLOW"),
    _float("--yarn-beta-fast", -1, 1000, "LLAMA_ARG_YARN_BETA_FAST"),
    # speculative decoding without a second model
    _choice("--spec-type", "none ngram-simple ngram-map-k ngram-map-k4v ngram-mod", "LLAMA_ARG_SPEC_TYPE"),
    _int("--spec-ngram-mod-n-match", 1, 1024),
    _int("--spec-ngram-mod-n-min", 0, 1024),
    _int("--spec-ngram-mod-n-max", 1, 1024),
    _int("--spec-ngram-simple-size-n", 1, 1024),
    _int("--spec-ngram-simple-size-m", 1, 1024),
    _int("--spec-ngram-simple-min-hits", 1, 1024),
    # embeddings
    _int("--embd-normalize", -1, 100),
)

VLLM: tuple[Flag, ...] = (
    _int("--max-num-seqs", 1, 65536),
    _int("--max-num-batched-tokens", 1, 2**24),
    _choice("--kv-cache-dtype", "auto fp8 fp8_e4m3 fp8_e5m2 bfloat16 float16"),
    _choice("--dtype", "auto half float16 bfloat16 float float32"),
    _name("--quantization", "", "-q"),
    _choice("--load-format", "auto safetensors gguf bitsandbytes"),  # `pt` unpickles, URIs fetch
    _pair("--enable-prefix-caching"),
    _pair("--enable-chunked-prefill"),
    _pair("--enforce-eager"),
    _pair("--async-scheduling"),
    _switch("--enable-auto-tool-choice"),
    _name("--tool-call-parser"),
    _name("--reasoning-parser"),
    _json("--limit-mm-per-prompt"),
    _json("--default-chat-template-kwargs"),
    _json("--speculative-config", keys="method num_speculative_tokens prompt_lookup_max prompt_lookup_min"),
    _choice("--generation-config", "vllm auto"),
    _choice("--block-size", "1 8 16 32 64 128 256"),
    _int("--seed", 0, 2**32 - 1),
    _int("--max-logprobs", -1, 1000),
    _choice("--chat-template-content-format", "auto string openai"),
)

ALLOWED: Mapping[str, tuple[Flag, ...]] = {"llama.cpp": LLAMA_CPP, "vllm": VLLM}

# --- flags that llmgw itself sets: to what a profile says instead --------------------------------------------------
_WEIGHTS, _OURS = "the model's weights", ""

SET_BY_LLMGW: Mapping[str, Mapping[str, str]] = {
    "llama.cpp": {
        **dict.fromkeys(("-m", "--model", "--mmproj", "-mm", "--lora", "--lora-init-without-apply"), _WEIGHTS),
        **dict.fromkeys(("-c", "--ctx-size"), "the profile's context"),
        **dict.fromkeys(("-np", "--parallel"), "the profile's slots"),
        **dict.fromkeys(("-t", "--threads"), "the profile's threads"),
        **dict.fromkeys(("-ngl", "--gpu-layers", "--n-gpu-layers"), "the profile's gpus_per_node"),
        **dict.fromkeys(("--embeddings", "--embedding", "--pooling", "--reranking", "--rerank"), "the model's kind"),
        **dict.fromkeys(
            ("-a", "--alias", "--host", "--port", "--api-key", "--api-key-file", "--metrics", "--props", "--slots",
             "--no-slots", "-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu", "-dev", "--device", "-fit", "--fit", "-fitt", "--fit-target", "-fitc", "--fit-ctx",
             "--offline", "--ui", "--no-ui", "--webui", "--no-webui", "-to", "--timeout", "-cram", "--cache-ram",
             "--threads-http", "--kv-unified", "--no-kv-unified", "-kvu", "-no-kvu", "--die-with-parent"),
            _OURS,
        ),
    },
    "vllm": {
        **dict.fromkeys(("--model", "--tokenizer", "--revision", "--tokenizer-revision", "--code-revision"), _WEIGHTS),
        **dict.fromkeys(("--enable-lora", "--lora-modules", "--max-loras", "--max-lora-rank"), "the model's adapters"),
        "--max-model-len": "the profile's context",
        **dict.fromkeys(("--gpu-memory-utilization", "--kv-cache-memory-bytes"), "the profile's card_memory"),
        **dict.fromkeys(("--tensor-parallel-size", "-tp"), "the profile's tp"),
        **dict.fromkeys(("--pipeline-parallel-size", "-pp", "--nnodes", "-n"), "the profile's pp"),
        **dict.fromkeys(
            ("--served-model-name", "--host", "--port", "--api-key", "--distributed-executor-backend",
             "--node-rank", "-r", "--master-addr", "--master-port", "--headless", "--enable-request-id-headers"),
            _OURS,
        ),
    },
}  # fmt: skip

# --- flags that are refused for a known reason --------------------------------------------------------------------
_CODE, _FILES, _NET = (
    "it runs code on the node",
    "it reads or writes files on the node",
    "it opens or changes network access",
)
_FETCH, _SECRET, _NODE = (
    "it downloads",
    "it names a credential",
    "it takes room or priority on the node that nobody planned",
)

DANGEROUS: Mapping[str, Mapping[str, str]] = {
    "llama.cpp": {
        **dict.fromkeys(("--tools", "--agent", "--tools-runtime", "--mcp-servers-config", "--mcp-servers-json", "--ui-mcp-proxy"), _CODE),
        **dict.fromkeys(
            ("--log-file", "--log-prompts-dir", "--slot-save-path", "--media-path", "--path", "--ui-config-file", "--grammar-file",
             "--chat-template-file", "--models-dir", "--models-preset", "--control-vector", "--control-vector-scaled",
             "--lora-scaled", "-md", "--model-draft", "--spec-draft-model", "--video-ffmpeg-dir", "--json-schema-file",
             "--lookup-cache-static", "--lookup-cache-dynamic"),
            _FILES,
        ),
        **dict.fromkeys(("-mu", "--model-url", "-hf", "-hfr", "--hf-repo", "-hff", "--hf-file", "-dr", "--docker-repo",
                         "-mmu", "--mmproj-url", "--spec-draft-hf", "--spec-default"), _FETCH),
        **dict.fromkeys(("-hft", "--hf-token"), _SECRET),
        **dict.fromkeys(("--rpc", "--api-prefix", "--reuse-port", "--ssl-key-file", "--ssl-cert-file", "--cors-origins",
                         "--cors-methods", "--cors-headers", "--cors-credentials"), _NET),
        **dict.fromkeys(("-ot", "--override-tensor", "--prio", "--prio-batch", "--numa", "--mlock", "--sleep-idle-seconds",
                         "-C", "--cpu-mask", "-Cr", "--cpu-range"), _NODE),
        **dict.fromkeys(("-v", "--verbose", "--log-verbose", "-lv", "--verbosity", "--log-verbosity"), "it writes prompts to the log"),
    },
    "vllm": {
        **dict.fromkeys(("--trust-remote-code", "--tool-parser-plugin", "--reasoning-parser-plugin", "--middleware", "--tool-server",
                         "--hf-overrides", "--worker-cls", "--worker-extension-cls", "--logits-processors", "--model-impl",
                         "--compilation-config", "-O"), _CODE),
        **dict.fromkeys(("--allowed-local-media-path", "--download-dir", "--chat-template", "--log-config-file", "--config",
                         "--profiler-config", "--hf-config-path"), _FILES),
        **dict.fromkeys(("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--root-path", "--allowed-origins", "--uds",
                         "--kv-transfer-config", "--kv-events-config", "--otlp-traces-endpoint", "--allowed-media-domains",
                         "--enable-tokenizer-info-endpoint", "--data-parallel-address"), _NET),
        "--hf-token": _SECRET,
    },
}  # fmt: skip
