"""The POST endpoints: what each is called, what kind of model answers it, and in whose shape it speaks. Only these paths
reach an engine.

Sources: OpenAI's and Anthropic's API references; `rerank`, `tokenize` and `detokenize` as llama.cpp and vLLM have them.
"""

from __future__ import annotations

from dataclasses import dataclass

CHAT, COMPLETIONS, EMBEDDINGS = "chat.completions", "completions", "embeddings"
RERANK, TOKENIZE, DETOKENIZE = "rerank", "tokenize", "detokenize"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`name` stands in records, metrics and log lines."""

    name: str
    path: str
    embeddings: bool | None = False  # whether embedding models answer it; None: models of either kind
    streams: bool = False


_ALL = (
    Endpoint(name=CHAT, path="/v1/chat/completions", streams=True),
    Endpoint(name=COMPLETIONS, path="/v1/completions", streams=True),
    Endpoint(name=EMBEDDINGS, path="/v1/embeddings", embeddings=True),
    Endpoint(name=RERANK, path="/v1/rerank", embeddings=True),
    Endpoint(name=TOKENIZE, path="/tokenize", embeddings=None),
    Endpoint(name=DETOKENIZE, path="/detokenize", embeddings=None),
)
ENDPOINTS = {item.name: item for item in _ALL}
"""By name."""
PATHS = {item.path: item.name for item in _ALL}
"""Path to name."""
