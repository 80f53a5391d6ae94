"""What an address tells of itself, and what of it is told to others."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit, urlunsplit


def is_loopback(url: str) -> bool:
    """Whether only the machine itself can reach this address."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def unreachable_controller(command: str) -> str:
    """The controller's address in a `llmgw node join` command, if no other machine can reach it; else empty."""
    urls = [url for option, url in pairwise(command.split()) if option == "--controller"]
    return urls[0] if urls and all(is_loopback(url) for url in urls) else ""


def bare(url: str) -> str:
    """An address as it may be shown: without user, password, query and fragment, which may hold signatures and tokens."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition("?")[0].partition("#")[0].rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def told(value: Any) -> Any:
    """JSON values as they may be shown: each address in them bare."""
    if isinstance(value, str):
        return bare(value) if value.strip().startswith(("http://", "https://")) else value
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    return [told(item) for item in value] if isinstance(value, list) else value
