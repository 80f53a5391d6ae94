"""Ports of engines: free, not taken by us, and out of the kernel's own range."""

from __future__ import annotations

import socket

import pytest

from workers.agent import ports


def test_a_port_is_free_and_below_the_ephemeral_range() -> None:
    port = ports.free_port()
    assert ports.FIRST <= port <= ports.LAST < 32768
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))


def test_taken_and_held_ports_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ports.free_port()
    monkeypatch.setattr(ports, "FIRST", first)
    monkeypatch.setattr(ports, "LAST", first)
    assert ports.free_port() == first
    with pytest.raises(OSError, match="taken"):
        ports.free_port({first})
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", first))
        holder.listen()
        with pytest.raises(OSError, match="taken"):
            ports.free_port()
