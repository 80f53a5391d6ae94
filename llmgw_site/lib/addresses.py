"""What an address tells of itself."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import pairwise
from urllib.parse import urlsplit


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
