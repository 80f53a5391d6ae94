"""How this node chooses nodes: `<data>/router.json`, read at start, replaced by PUT /api/v1/router/strategy."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.files import read_json, write_json
from llmgw_site.lib.logs import event
from routing.domain.nodes import Rule, read_rule

log = logging.getLogger(__name__)


class StoredRule:
    """`rule` is what counts now, and what stands on the disk."""

    def __init__(self, path: Path) -> None:
        self.rule = Rule()
        self._path = path
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Take over what was stored; what cannot be read is logged, and the default counts."""
        try:
            value = read_json(self._path)
            if value is not None:
                self.rule = read_rule(value, Rule())
        except (OSError, Refused) as error:
            event(log, "strategy_unreadable", level=logging.ERROR, file=self._path.name, error=str(error)[:300])

    async def put(self, value: Any, *, actor: str) -> Rule:
        """Store a rule, then follow it. Raises Refused: 400 `invalid_strategy`, 500 `persist_failed`; nothing changes then."""
        async with self._writing:
            rule = read_rule(value, self.rule)
            try:
                await asyncio.to_thread(write_json, self._path, shown(rule))
            except OSError as error:
                event(log, "strategy_not_stored", level=logging.ERROR, error=str(error)[:300])
                raise Refused(
                    Kind.INTERNAL,
                    "persist_failed",
                    f"The strategy could not be stored ({error.strerror}), so it stays as it was: make room in the data "
                    "folder of this node, or make it writable.",
                ) from None
            before, self.rule = self.rule, rule
        event(log, "strategy_changed", actor=actor, before=shown(before), after=shown(rule))
        return rule


def shown(rule: Rule) -> dict[str, Any]:
    """The rule as the file and the API have it."""
    return {"strategy": rule.strategy.value, "affinity": rule.affinity}
