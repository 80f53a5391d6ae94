"""The POST endpoints: what each is called, what kind of model answers it, and in whose shape it speaks. Only these paths
reach an engine.

Sources: OpenAI's and Anthropic's API references; `rerank`, `tokenize` and `detokenize` as llama.cpp and vLLM have them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

CHAT, COMPLETIONS, EMBEDDINGS = "chat.completions", "completions", "embeddings"
MESSAGES, COUNT_TOKENS, RESPONSES = "messages", "messages.count_tokens", "responses"
TRANSCRIPTIONS, TRANSLATIONS, SPEECH = "audio.transcriptions", "audio.translations", "audio.speech"
IMAGES, EDITS, VARIATIONS = "images.generations", "images.edits", "images.variations"
RERANK, TOKENIZE, DETOKENIZE = "rerank", "tokenize", "detokenize"
MODELS = "models"
"""The lists, which are read with GET: none of the table below."""
MODELS_PATH = "/v1/models"
OTHER = "other"
"""Whatever is no endpoint."""


class Shape(StrEnum):
    """Whose errors, counts and streams an endpoint has."""

    OPENAI = "openai"  # chunks and `[DONE]`
    ANTHROPIC = "anthropic"  # named events, the last one `message_stop`
    RESPONSES = "responses"  # OpenAI's errors; named events, the last one `response.completed` or why not


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`name` stands in records, metrics and log lines."""

    name: str
    path: str
    embeddings: bool | None = False  # whether embedding models answer it; None: models of either kind
    streams: bool = False
    shape: Shape = Shape.OPENAI
    form: bool = False  # the request is a form with files
    opaque: bool = (
        False  # the answer is whatever it is: sound, pictures, text, events; it passes and has no end of its own
    )


_ALL = (
    Endpoint(name=CHAT, path="/v1/chat/completions", streams=True),
    Endpoint(name=COMPLETIONS, path="/v1/completions", streams=True),
    Endpoint(name=EMBEDDINGS, path="/v1/embeddings", embeddings=True),
    Endpoint(name=MESSAGES, path="/v1/messages", streams=True, shape=Shape.ANTHROPIC),
    Endpoint(name=COUNT_TOKENS, path="/v1/messages/count_tokens", shape=Shape.ANTHROPIC),
    Endpoint(name=RESPONSES, path="/v1/responses", streams=True, shape=Shape.RESPONSES),
    Endpoint(name=RERANK, path="/v1/rerank", embeddings=True),
    Endpoint(name=TRANSCRIPTIONS, path="/v1/audio/transcriptions", form=True, opaque=True),
    Endpoint(name=TRANSLATIONS, path="/v1/audio/translations", form=True, opaque=True),
    Endpoint(name=SPEECH, path="/v1/audio/speech", streams=True, opaque=True),
    Endpoint(name=IMAGES, path="/v1/images/generations", streams=True, opaque=True),
    Endpoint(name=EDITS, path="/v1/images/edits", form=True, opaque=True),
    Endpoint(name=VARIATIONS, path="/v1/images/variations", form=True, opaque=True),
    Endpoint(name=TOKENIZE, path="/tokenize", embeddings=None),
    Endpoint(name=DETOKENIZE, path="/detokenize", embeddings=None),
)
ENDPOINTS = {item.name: item for item in _ALL}
"""By name."""
PATHS = {item.path: item.name for item in _ALL}
"""Path to name."""


def meant(path: str) -> str | None:
    """The path that a client means whose base URL lacks its /v1, or has one too many; None where there is none."""
    ours = path.removeprefix("/v1") if path.startswith("/v1/") else f"/v1{path}"
    return ours if ours in PATHS or ours == MODELS_PATH else None


def shape_of(endpoint: str) -> Shape:
    """Of an endpoint by name; OpenAI's for all that is none."""
    found = ENDPOINTS.get(endpoint)
    return Shape.OPENAI if found is None else found.shape
