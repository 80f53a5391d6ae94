"""`llmgw up`: what must hold before anything starts, then the supervisor."""

from __future__ import annotations

import asyncio
import os
import sys

from llmgw_site.lib import files
from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.errors import Refused
from llmgw_site.up import ports, processes
from llmgw_site.up.lock import Lock
from llmgw_site.up.node import NodeSupervisor, identity_of
from llmgw_site.up.quickstart import env_path
from llmgw_site.up.supervisor import Supervisor
from llmgw_site.up.terminal import Terminal
from workers.agent import removed

SOCKET_PATH_LIMIT = 107
"""Bytes of a unix socket's path, without the final zero: unix(7)."""


def run(config: Config, *, keep_engines: bool = False) -> int:
    """Start everything and stay until a signal; the exit status of the command."""
    terminal = Terminal()
    longest = len(bytes(config.web_socket)) + len("valkey") - len("web")
    if longest > SOCKET_PATH_LIMIT:
        print(
            f"llmgw: the path of the data folder is {longest - SOCKET_PATH_LIMIT} bytes too long for the unix sockets in "
            f"it: set LLMGW_DATA to a shorter one than {config.data}",
            file=sys.stderr,
        )
        return 1
    gone = removed.said(config)
    if gone:
        print(f"llmgw: {gone}", file=sys.stderr)
        return 1
    lock = Lock(config)
    try:
        kind = Supervisor if identity_of(config) is None else NodeSupervisor
        files.private_folder(config.data)
        lock.take()
    except (Refused, OSError) as error:
        print(f"llmgw: {error}", file=sys.stderr)
        return 1
    try:
        env_path(config).unlink(missing_ok=True)  # of an `up` that was killed: it says "ready", and we are not yet
        left = processes.services_of(config.data)
        if left:  # the supervisor before us was killed; we hold the lock, so nobody else cares for these
            terminal.say(f"ending {len(left)} processes of an `up` that was killed")
            processes.end(left, patience=5.0)
        problems = ports.problems(config)
        if problems:
            print("\n".join(f"llmgw: {problem}" for problem in problems), file=sys.stderr)
            return 1
        return asyncio.run(kind(config, terminal, keep_engines=keep_engines).run())
    finally:
        lock.release()


def main(argv: list[str]) -> int:
    """`python -m llmgw_site.up.main [--keep-engines]`, which `llmgw up` becomes."""
    os.umask(0o077)  # also for what others write under the data folder: SQLite, Valkey
    try:
        config = load()
    except ConfigError as error:
        print("\n".join(f"llmgw: {problem}" for problem in error.problems), file=sys.stderr)
        return 2
    return run(config, keep_engines="--keep-engines" in argv)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
