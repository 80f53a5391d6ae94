"""Choices of table columns: the engines that a profile may name, the classes of models and scopes."""

from __future__ import annotations

ENGINES = [("llama.cpp", "llama.cpp"), ("vllm", "vLLM")]
CLASSES = [("critical", "critical"), ("standard", "standard"), ("opportunistic", "opportunistic")]
"""The highest first. Of models: room of a lower one may be taken for a higher one. Of scopes: who waits of a higher one goes first."""
USUAL_CLASS = "standard"
"""Of scopes of which nothing is said."""
ROLES = [("viewer", "viewer"), ("operator", "operator"), ("admin", "admin")]
"""The more, the later; what each may: `domain.roles`."""
