"""`<data>/cluster/engines.json`: what the gateway of this node may use. 0600, because the engines' keys stand in it."""

from __future__ import annotations

from pathlib import Path

from cluster.wire import EnginesFile, LocalEngine, StartingReplica, to_dict
from llmgw_site.lib import files


def write(
    path: Path, *, engines: tuple[LocalEngine, ...], starting: tuple[StartingReplica, ...], written_at: float
) -> files.Mark:
    """Replace the file; a gateway sees the old one or the new one. Gives the mark of the new one."""
    return files.write_json(path, to_dict(EnginesFile(written_at=written_at, engines=engines, starting=starting)))
