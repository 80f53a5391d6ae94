"""One supervisor for each data folder: an flock on `<data>/run/up.lock`, which the kernel lets go of with its process.

The file says who holds it. Nothing is to delete after a crash: a lock whose holder is gone is free.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import orjson

from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_seconds


class Lock:
    """Held from `take` until `release` or the end of the process."""

    def __init__(self, config: Config) -> None:
        self._data = config.data
        self._path = config.run / "up.lock"
        self._handle: int | None = None

    def take(self) -> None:
        """Take it, or be Refused (data_in_use) with who holds it since when."""
        files.private_folder(self._path.parent)
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held = _holder(self._path)
            os.close(handle)
            raise Refused(
                Kind.CONFLICT,
                "data_in_use",
                f"{self._data} is in use by another `llmgw up`{held}. Stop that one, or give this one a folder of its "
                "own: LLMGW_DATA=other LLMGW_PORT=8801 LLMGW_NODE_PORT=8881 LLMGW_METRICS_PORT=8891 make up",
            ) from None
        os.truncate(handle, 0)
        os.pwrite(handle, orjson.dumps({"pid": os.getpid(), "since": time.time()}), 0)
        self._handle = handle

    def release(self) -> None:
        if self._handle is not None:
            os.truncate(self._handle, 0)
            os.close(self._handle)
            self._handle = None


def _holder(path: Path) -> str:
    held = files.read_json(path)
    if not isinstance(held, dict) or not held.get("pid"):
        return ""  # it has only just taken it
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(held["since"]))
    return f": process {held['pid']}, since {since} ({format_seconds(time.time() - held['since'])} ago)"
