"""The program that stands in for vLLM, as a process behind a gateway."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.processes import free_port
from tests.routing.gateway.rig import ENGINE_KEY

STUB = Path(__file__).parents[2] / "e2e" / "vllm_stub.py"
CONFIG = '{"architectures": ["LlamaForCausalLM"], "num_attention_heads": 4, "num_hidden_layers": 2, "hidden_size": 64}'


@asynccontextmanager
async def vllm_engine(folder: Path, *adapters: str) -> AsyncIterator[int]:
    """Its port. It serves the model `m` and these adapters; its files come to lie in `folder`."""
    weights, port = folder / "weights", free_port()
    weights.mkdir()
    (weights / "config.json").write_text(CONFIG)
    (weights / "model.safetensors").write_bytes(b"s" * 1000)
    options = {
        "served-model-name": "m", "host": "127.0.0.1", "port": port, "max-model-len": 256, "max-num-seqs": 4,
        "tensor-parallel-size": 1, "gpu-memory-utilization": 0.5,
    }  # fmt: skip
    argv = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    if adapters:
        argv += ["--enable-lora", "--lora-modules"]
    for name in adapters:
        (folder / name).mkdir()
        (folder / name / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 8}))
        (folder / name / "adapter_model.safetensors").write_bytes(b"s")
        argv.append(f"{name}={folder / name}")
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "0", "VLLM_API_KEY": ENGINE_KEY}
    process = await asyncio.create_subprocess_exec(sys.executable, str(STUB), "serve", str(weights), *argv, env=env)
    try:
        yield port
    finally:
        process.kill()
        await process.wait()
