"""The engines that a profile may name, as choices of a table column."""

from __future__ import annotations

ENGINES = [("llama.cpp", "llama.cpp"), ("vllm", "vLLM")]
