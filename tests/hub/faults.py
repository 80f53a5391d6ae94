"""What can go wrong with a hub. Each fault is off until a test sets it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Faults:
    """Set what shall go wrong; `reset` makes everything well again."""

    cut_after: int | None = None
    """Bytes of a file's body after which the connection is cut."""
    cuts: int = 1_000_000
    """How many answers are cut."""
    ignore_range: bool = False
    """Answer 200 with the whole file to a Range."""
    wrong_bytes: bool = False
    """One byte of the file is another."""
    other_range: bool = False
    """A range is answered by one that begins at 0, and says so."""
    wrong_length: int = 0
    """Bytes that the server claims too many."""
    rate_limits: int = 0
    """Answers that are 429 before it is well again."""
    rate_wait: int = 1
    """Seconds that a 429 asks to wait."""
    rate_style: str = "ratelimit"
    """How a 429 says so: `ratelimit` or `retry-after`."""
    server_errors: int = 0
    """Answers that are 503 before it is well again."""
    chunk_pause: float = 0.0
    """Seconds between two pieces of a body."""
    stall_after: int | None = None
    """Bytes after which a body says nothing more, with the connection open."""
    hold_from: int | None = None
    """Place in a file from which on its bytes wait until this is no fault any more."""
    hold_after: int | None = None
    """The same, of how many bytes were sent of all files together (`Hub.sent`)."""
    redirect_to: str = ""
    """Where a file's Location leads instead of the hub's own file host."""
    expire_after: int | None = None
    """Uses after which a signed address answers 403."""
    bare: bool = False
    """A mirror that lacks the hub's own headers and endpoints."""
    login_page: bool = False
    """A captive portal: HTML with status 200 whatever is asked."""
    huge_json: bool = False
    """An endless list where an answer was expected."""

    def reset(self) -> None:
        self.__dict__.update(Faults().__dict__)
