"""Choices of table columns: the engines that a profile may name, the classes of models."""

from __future__ import annotations

ENGINES = [("llama.cpp", "llama.cpp"), ("vllm", "vLLM")]
CLASSES = [("critical", "critical"), ("standard", "standard"), ("opportunistic", "opportunistic")]
"""The highest first: room of a lower one may be taken for a higher one."""
ROLES = [("viewer", "viewer"), ("operator", "operator"), ("admin", "admin")]
"""The more, the later; what each may: `domain.roles`."""
