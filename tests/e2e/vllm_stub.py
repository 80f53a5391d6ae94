"""Stands in for the program `vllm`: takes the arguments of `vllm serve` and no others, looks at the folder that it is given as vLLM
would, and speaks its API (/health, /v1/models, /metrics, completions, chat) behind VLLM_API_KEY. It ends with 2 and a reason where
something is not as it should be. Options: vLLM 0.11, `vllm serve --help`.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

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
    return found.parse_args()


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
    engine.main()


if __name__ == "__main__":
    main()
