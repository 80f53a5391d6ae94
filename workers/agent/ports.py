"""Ports of engines: on loopback, below the kernel's ephemeral range, where no outgoing connection can take them."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

FIRST, LAST = 24000, 31999
"""Linux hands out 32768 and above by itself (ip_local_port_range)."""


def free_port(taken: Collection[int] = ()) -> int:
    """A port that nobody holds now and no engine of ours is about to. Raises OSError if there is none."""
    for port in random.sample(range(FIRST, LAST + 1), LAST - FIRST + 1):
        if port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError(f"every port from {FIRST} to {LAST} is taken")
