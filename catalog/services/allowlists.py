"""Lists of the models that a key, or the keys below a scope, may use."""

from __future__ import annotations

import re
from collections.abc import Sequence

from catalog.models.names import MODEL_NAME
from llmgw_site.lib.errors import Kind, Refused

MAX_MODELS = 1000


def allowlist(models: Sequence[str] | None, *, param: str = "models") -> list[str] | None:
    """Names of models and adapters, each once; None: all. A name need not be in the catalogue yet. Raises Refused."""
    if models is None:
        return None
    listed = isinstance(models, Sequence) and not isinstance(models, str)
    good = listed and all(isinstance(item, str) and re.search(MODEL_NAME, item) for item in models)
    if not good or not 1 <= len(models) <= MAX_MODELS:
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            f"{param}: a list of 1 to {MAX_MODELS} model names is needed, or nothing for all models.",
            param=param,
        )
    return list(dict.fromkeys(models))
