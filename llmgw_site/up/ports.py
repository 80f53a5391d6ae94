"""Whether the ports are free, before anything starts: a taken one is named, with how to choose another."""

from __future__ import annotations

import errno
import socket

from llmgw_site.lib.config import Config


def listeners(config: Config) -> tuple[tuple[str, str, str, int], ...]:
    """(what it is for, its variable, host, port) of every listener."""
    return (
        ("client", "LLMGW_PORT", config.host, config.port),
        ("node", "LLMGW_NODE_PORT", config.node_host, config.node_port),
        ("metrics", "LLMGW_METRICS_PORT", config.metrics_host, config.metrics_port),
    )


def problems(config: Config) -> list[str]:
    """A sentence for each listener that could not be bound; empty if all can."""
    found = []
    for what, variable, host, port in listeners(config):
        code = _bind_error(host, port)
        if code == errno.EADDRINUSE:
            found.append(
                f"port {port} of {host} ({what} listener) is taken by another program. "
                f"Choose another: {variable}={_free_near(host, port)} make up"
            )
        elif code is not None:
            found.append(
                f"{host}:{port} ({what} listener) cannot be bound: {_reason(code)}. "
                f"Set {variable.replace('PORT', 'HOST')} and {variable} to an address of this machine and a port above 1023"
            )
    return found


def _bind_error(host: str, port: int) -> int | None:
    """errno of binding; None if it works. SO_REUSEADDR as the gateway sets it: what lingers in TIME_WAIT is free."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    with socket.socket(family, kind, proto) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            code: int | None = error.errno
            return code
    return None


def _free_near(host: str, port: int) -> int:
    """A port that is free now, for the advice."""
    other: int
    for other in [*range(port + 1, min(port + 50, 65536)), *range(20000, 20050)]:
        if _bind_error(host, other) is None:
            return other
    return port + 1


def _reason(code: int) -> str:
    return {
        errno.EACCES: "only root may use ports below 1024",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }.get(code, errno.errorcode.get(code, str(code)))
