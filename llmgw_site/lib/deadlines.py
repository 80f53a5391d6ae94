"""Network for httpx in which everything until an answer's head is whole happens within one time.

httpx bounds each read; a server that sends a byte of its headers now and then would hold a thread for days.
"""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore
import httpx

Left = Callable[[float | None], float | None]


class Deadline(httpcore.NetworkBackend):
    """The connections of one transport. What a thread does `within` so many seconds is cut when they are over, by
    httpx.ReadTimeout; what it does outside has the bounds that httpx gives each step."""

    def __init__(self) -> None:
        self._inner = httpcore.SyncBackend()
        self._of_thread = threading.local()

    def carry(self, transport: httpx.HTTPTransport) -> None:
        """Have its connections made here: httpx has no parameter for that."""
        transport._pool._network_backend = self

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        self._of_thread.until, self._of_thread.seconds = time.monotonic() + seconds, seconds
        try:
            yield
        finally:
            del self._of_thread.until

    def left(self, timeout: float | None) -> float | None:
        """The bound of one step, `timeout` being httpx's. Raises httpcore.ReadTimeout when the time is over."""
        until = getattr(self._of_thread, "until", None)
        if until is None:
            return timeout
        left: float = until - time.monotonic()
        if left <= 0:
            raise httpcore.ReadTimeout(f"no whole head of an answer within {self._of_thread.seconds:g} s")
        return left if timeout is None else min(timeout, left)

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        stream = self._inner.connect_tcp(host, port, self.left(timeout), local_address, socket_options)
        return _Stream(stream, self.left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream, left: Left) -> None:
        self._stream = stream
        self._left = left

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, self._left(timeout)), self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
