"""Stands in for the program `vllm`: takes the arguments of `vllm serve` and no others, looks at the folder that it is given as vLLM
would, and speaks its API (/health, /v1/models, /metrics, completions, chat) behind VLLM_API_KEY. It ends with 2 and a reason where
something is not as it should be. Options: vLLM 0.11, `vllm serve --help`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.fakes import engine


def options() -> argparse.Namespace:
    found = argparse.ArgumentParser(prog="vllm", allow_abbrev=False)
    found.add_argument("command", choices=["serve"])
    found.add_argument("model_tag", type=Path)
    found.add_argument("--served-model-name", required=True)
    found.add_argument("--host", required=True, choices=["127.0.0.1"])
    found.add_argument("--port", required=True, type=int)
    found.add_argument("--max-model-len", required=True, type=int)
    found.add_argument("--max-num-seqs", required=True, type=int)
    found.add_argument("--tensor-parallel-size", required=True, type=int)
    found.add_argument("--gpu-memory-utilization", required=True, type=float)
    found.add_argument("--enable-lora", action="store_true")
    found.add_argument("--max-loras", type=int, default=1)
    found.add_argument("--max-lora-rank", type=int, default=16, choices=[1, 8, 16, 32, 64, 128, 256, 320, 512])
    found.add_argument("--lora-modules", nargs="+", default=[])
    return found.parse_args()


def loras(given: argparse.Namespace) -> dict[str, Path]:
    """Adapters by name, each as vLLM would find it. Ends where one could not be loaded."""
    found = {name: Path(path) for name, _, path in (item.partition("=") for item in given.lora_modules)}
    for name, folder in found.items():
        config = orjson.loads((folder / "adapter_config.json").read_bytes())
        good = given.enable_lora and config["peft_type"] == "LORA" and config["r"] <= given.max_lora_rank
        if not good or not (folder / "adapter_model.safetensors").exists():
            sys.exit(f"vllm: the adapter {name} cannot be loaded: {sys.argv[1:]}")
    return found


class Handler(engine.Handler):
    """Answers for the models that vLLM was given by name; an adapter says its own."""

    known: tuple[str, ...] = ()

    def figures(self) -> str:
        """As vLLM 0.11 writes them by prometheus_client: two spellings of what it renamed, NaN where it has nothing to say."""
        working, tokens = self.server.working, self.server.tokens
        labels = f'{{engine="0",model_name="{self.known[0]}"}}'
        lines = [
            "# HELP vllm:num_requests_running Number of requests in model execution batches.",
            "# TYPE vllm:num_requests_running gauge",
            f"vllm:num_requests_running{labels} {float(working)}",
            "# TYPE vllm:num_requests_waiting gauge",
            f"vllm:num_requests_waiting{labels} 0.0",
            f"vllm:kv_cache_usage_perc{labels} {working / 8}",
            f"vllm:gpu_cache_usage_perc{labels} {working / 8}",
            f"vllm:gpu_prefix_cache_hit_rate{labels} NaN",
            f"vllm:prompt_tokens_total{labels} {float(tokens)}",
            f"vllm:prompt_tokens_created{labels} 1.7565e+09",
            f"vllm:generation_tokens_total{labels} {float(tokens)}",
            f'vllm:iteration_tokens_total_bucket{{engine="0",le="1.0",model_name="{self.known[0]}"}} {float(tokens)}',
            f"vllm:iteration_tokens_total_count{labels} {float(tokens)}",
            f"vllm:iteration_tokens_total_sum{labels} {float(tokens)}",
            f"vllm:time_to_first_token_seconds_sum{labels} 0.25",
            f"vllm:time_to_first_token_seconds_count{labels} {float(tokens)}",
        ]
        return "\n".join(lines) + "\n"

    def compute(self, body: dict[str, Any]) -> None:
        name = body.get("model")
        if name not in self.known:
            self.refuse(404, f"The model `{name}` does not exist.")
        elif name != self.known[0] and not body.get("stream"):
            self.whole(["Hello ", "from ", str(name)])
        else:
            super().compute(body)


def main() -> None:
    given = options()
    folder = given.model_tag
    config = orjson.loads((folder / "config.json").read_bytes())
    cards = [item for item in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if item]
    problems = {
        "no *.safetensors in the folder": not list(folder.glob("*.safetensors")),
        "no architectures in config.json": not config.get("architectures"),
        "the heads cannot be divided": config["num_attention_heads"] % given.tensor_parallel_size != 0,
        "other cards are visible than are used": len(cards) != given.tensor_parallel_size,
        "its part of a card is none": not 0 < given.gpu_memory_utilization <= 1,
        "no key": not os.environ.get("VLLM_API_KEY"),
    }
    for problem, there in problems.items():
        if there:
            sys.exit(f"vllm: {problem}: {sys.argv[1:]}")
    os.environ["LLMGW_ENGINE_KEY"] = os.environ.pop("VLLM_API_KEY")
    sys.argv = ["engine", "--port", str(given.port), "--model", given.served_model_name]
    Handler.known = (given.served_model_name, *loras(given))
    engine.Handler = Handler  # type: ignore[misc]
    engine.main()


if __name__ == "__main__":
    main()
