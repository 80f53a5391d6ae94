"""A node that was taken out of its cluster: its files are put aside, so that nothing serves or reports from them again.

Nothing is deleted: engines' weights, logs and the usage spool stay where they are, the rest moves to
`<data>/removed/<node id>/`. `<data>/node/removed.json` says so to whoever starts this folder next.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from llmgw_site.lib import files
from llmgw_site.lib.config import Config

TLS_FILES = ("ca.pem", "node.pem", "node.key")


def _marker(config: Config) -> Path:
    return config.node_file.parent / "removed.json"


def put_aside(config: Config, *, node_id: str) -> Path:
    """Move identity, certificate, map, snapshot with revocations, and wanted state away; the folder they are in now. Raises OSError."""
    aside = files.private_folder(config.data / "removed" / node_id)
    files.write_json(_marker(config), {"node_id": node_id, "removed_at": time.time()})
    kept = (
        config.snapshot_file, config.revoked_file, config.map_file, config.wanted_file, config.switches_file,
        *(config.tls_folder / name for name in TLS_FILES), config.node_file,
    )  # fmt: skip
    for path in kept:
        with suppress(FileNotFoundError):
            path.replace(aside / path.name)
    return aside


def said(config: Config) -> str:
    """What to tell whoever starts a node that was removed; empty if it was not."""
    try:
        found = files.read_json(_marker(config))
    except OSError:  # a folder of another user: whoever starts says so in other words
        return ""
    if not isinstance(found, dict) or config.node_file.exists():
        return ""
    return (
        f"this machine was node {found.get('node_id')} and was removed from its cluster: enter one with "
        f"`llmgw node join TOKEN --controller URL`, or delete {_marker(config)} to start a cluster of its own"
    )


def forget(config: Config) -> None:
    """It is a node again."""
    _marker(config).unlink(missing_ok=True)
