"""Stands in for the program `vllm`: takes the arguments of `vllm serve` and no others, looks at the folder that it is given as vLLM
would, and speaks its API (/health, /v1/models, /metrics, completions, chat, embeddings, rerank) behind VLLM_API_KEY. It ends with 2 and a reason where
something is not as it should be. Options: vLLM 0.12, `vllm serve --help`.

Over several nodes it does what vLLM's multi-node mp executor does at its edges (vllm/entrypoints/cli/serve.py, run_headless, and
vllm/config/parallel.py): rank 0 listens at the master's address and answers nobody before all have joined; the others are headless,
look for the master, and end when it ends. Rank 0 notices nothing of the end of another until it has to compute, and then fails.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import os
import socket
import sys
import threading
import time
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
    found.add_argument("--pipeline-parallel-size", "-pp", type=int, default=1)
    found.add_argument("--distributed-executor-backend", choices=["mp"])
    found.add_argument("--nnodes", "-n", type=int, default=1)
    found.add_argument("--node-rank", "-r", type=int, default=0)
    found.add_argument("--master-addr", default="127.0.0.1")
    found.add_argument("--master-port", type=int, default=29501)
    found.add_argument("--headless", action="store_true")
    return found.parse_args()


def between_nodes(given: argparse.Namespace, layers: int) -> dict[str, bool]:
    """What could be wrong with the arguments of an engine over several nodes, and whether it is."""
    if given.nnodes == 1:
        return {"it is headless, and nobody leads it": given.headless or given.node_rank > 0}
    address, own = ipaddress.ip_address(given.master_addr), os.environ.get("VLLM_HOST_IP", "")
    return {
        "the nodes have not one stage each": given.pipeline_parallel_size != given.nnodes,
        "more stages than layers": given.pipeline_parallel_size > layers,
        "without Ray it is mp": given.distributed_executor_backend != "mp",
        "no such rank": not 0 <= given.node_rank < given.nnodes,
        "rank 0 answers, all others are headless": given.headless != (given.node_rank > 0),
        "the master is on loopback": address.is_loopback or address.is_unspecified,
        "this node's own address is not told": not own or ipaddress.ip_address(own).is_loopback,
    }


JOIN_FOR = 60.0
"""Seconds that a part looks for its master. torch.distributed has 300."""


def lead(given: argparse.Namespace) -> None:
    """Wait for all others; afterwards note who goes."""
    server = socket.create_server((given.master_addr, given.master_port))
    joined: dict[int, socket.socket] = {}
    while len(joined) < given.nnodes - 1:
        peer, _ = server.accept()
        said = orjson.loads(peer.makefile("rb").readline())
        rank = said["rank"]
        if said != {"rank": rank, "nnodes": given.nnodes, "model": str(given.model_tag)} or rank in joined:
            sys.exit(f"vllm: this is none of its parts: {said}")
        joined[rank] = peer
    for peer in joined.values():
        peer.sendall(b"all\n")
    for rank, peer in joined.items():
        threading.Thread(target=watch, args=(rank, peer), daemon=True).start()


def watch(rank: int, peer: socket.socket) -> None:
    with peer:
        while peer.recv(64):
            pass
    sys.stderr.write(f"rank {rank} is gone\n")
    Handler.broken = True


def follow(given: argparse.Namespace) -> None:
    """Join the master, and end when it ends."""
    until = time.monotonic() + JOIN_FOR
    while True:
        try:
            master = socket.create_connection((given.master_addr, given.master_port), timeout=5)
            break
        except OSError as error:
            if time.monotonic() > until:
                sys.exit(f"vllm: RuntimeError: no master at {given.master_addr}:{given.master_port}: {error}")
            time.sleep(0.1)
    master.settimeout(None)
    said = {"rank": given.node_rank, "nnodes": given.nnodes, "model": str(given.model_tag)}
    master.sendall(orjson.dumps(said) + b"\n")
    while master.recv(64):
        pass
    sys.exit("vllm: RuntimeError: the master is gone")


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
    broken = False
    prompts = 0
    """Tokens of all prompts so far: their words."""

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
            f"vllm:prompt_tokens_total{labels} {float(Handler.prompts)}",
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
        if self.broken:
            self.refuse(500, "EngineCore encountered an issue: a part of it is gone.")
        elif name not in self.known:
            self.refuse(404, f"The model `{name}` does not exist.")
        else:
            self.read = len(json.dumps(body.get("messages") or [body.get(name) for name in TEXTS]).split())
            with self.server.lock:
                Handler.prompts += self.read
            if self.path == "/v1/embeddings":
                data = [{"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}]
                self.answer(200, {"object": "list", "data": data, "usage": self.usage([])})
            elif self.path == "/v1/rerank":
                results = [{"index": 0, "document": {"text": "a"}, "relevance_score": 0.5}]
                self.answer(200, {"id": "r", "model": name, "results": results, "usage": {"total_tokens": self.read}})
            elif name != self.known[0] and not body.get("stream"):
                self.whole(["Hello ", "from ", str(name)])
            else:
                super().compute(body)


TEXTS = ("prompt", "input", "query", "documents")


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
        **between_nodes(given, config["num_hidden_layers"]),
    }
    for problem, there in problems.items():
        if there:
            sys.exit(f"vllm: {problem}: {sys.argv[1:]}")
    if given.node_rank:
        follow(given)
    if given.nnodes > 1:
        lead(given)
    os.environ["LLMGW_ENGINE_KEY"] = os.environ.pop("VLLM_API_KEY")
    sys.argv = ["engine", "--port", str(given.port), "--model", given.served_model_name]
    Handler.known = (given.served_model_name, *loras(given))
    engine.Handler = Handler  # type: ignore[misc]
    engine.main()


if __name__ == "__main__":
    main()
