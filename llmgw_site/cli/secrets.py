"""What `llmgw key` and `llmgw token` share: state, finding a live one by name, the text that is shown once."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from llmgw_site.cli.client import Api, CliError, ExitCode, print_json


def state(row: dict[str, Any]) -> str:
    """live, revoked or expired."""
    if row["revoked_at"]:
        return "revoked"
    expires = row["expires_at"]
    return "expired" if expires and datetime.fromisoformat(expires) <= datetime.now(UTC) else "live"


def find_live(client: Api, path: str, ref: str, *, noun: str) -> dict[str, Any]:
    """The one row whose id, name or shown beginning is `ref`; a name means a row that was not revoked."""
    rows = client.all(path)
    live = [row for row in rows if not row["revoked_at"]]
    found = (
        [row for row in rows if row["id"] == ref]
        or [row for row in live if row["name"] == ref]
        or [row for row in live if ref in (row["prefix"], row.get("former_prefix") or None)]
    )
    if not found:
        raise CliError(ExitCode.NOT_FOUND, f"there is no live {noun} {ref!r}; `llmgw {noun} list` shows them")
    if len(found) > 1:
        raise CliError(ExitCode.REFUSED, f"{len(found)} {noun}s are named {ref!r}: give the id instead")
    return found[0]


def show_new(row: dict[str, Any], text: str, *, as_json: bool) -> None:
    """The secret alone on standard output, so that a script can take it; everything else on standard error."""
    if as_json:
        print_json(row)
        return
    print(f"Made {row['name']} ({row['id']}). It is shown this once:", file=sys.stderr)
    print(text)
