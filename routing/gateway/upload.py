"""A form with files on its way in: its beginning is read until the model is known, the rest passes piece by piece.

What is in memory is the beginning, at most HEAD bytes, and a piece at a time. The whole form is looked at as it passes: a second
model, or an address that an engine would fetch, ends it before the engine has it whole.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_bytes
from routing.domain import media
from routing.domain.bodies import refused
from routing.domain.multipart import Field, Scanner, boundary_of
from routing.domain.openai import Ask
from routing.gateway.exchange import Exchange

HEAD = 1 << 20
"""Bytes of a form in which its model must be named: clients that send the file first are served while it is small."""


class Upload:
    """The rest of a form whose beginning was read. `most`: bytes that all of it may have."""

    def __init__(self, exchange: Exchange, scanner: Scanner, read: int, most: int, *, over: bool) -> None:
        self.over = over
        """All of it was read: from now on the client's leaving is watched for."""
        self.guarded = True
        """An engine of ours answers, which would fetch what a field names."""
        self._exchange = exchange
        self._scanner = scanner
        self._read = read
        self._most = most

    def left(self) -> int | None:
        """Bytes that follow; None: the client does not say."""
        length = self._exchange.content_length
        return 0 if self.over else None if length is None else length - self._read

    async def stream(self, head: bytes) -> AsyncIterator[bytes]:
        """`head`, then the rest. Raises Refused, ClientGone."""
        yield head
        while not self.over:
            piece, self.over = await self._exchange.piece()
            self._read += len(piece)
            if self._read > self._most:
                raise _too_large(self._most)
            for field in self._scanner.feed(piece):
                if field.name == "model":
                    raise refused("duplicate_field", "The form names a model twice: send each field once.", "model")
                if self.guarded and (place := media.fetched_by(field)):
                    raise media.refused(place)
            if piece:
                yield piece
        if not self._scanner.done:
            raise refused("invalid_multipart", "The form cannot be read: it ends before its last boundary.")


async def begin(exchange: Exchange, *, most: int) -> tuple[Ask, bytes]:
    """Read until the model is known: what is asked for, and the bytes so far. Raises ClientGone, or Refused:

    1. `unsupported_content_encoding`, `body_too_large`   as of any body
    2. `invalid_multipart`   no form, or one that could be read in several ways
    3. `missing_field`       the model does not stand in the first HEAD bytes
    """
    if exchange.content_coding not in (b"", b"identity"):  # 1
        raise refused("unsupported_content_encoding", "A compressed request body is not read: send it plain.")
    if exchange.content_length is not None and exchange.content_length > most:
        raise _too_large(most)
    scanner = Scanner(boundary_of(content_type(exchange)))  # 2
    head, over = b"", False
    fields: list[Field] = []
    model: Field | None = None
    while model is None and not over and len(head) < HEAD:
        piece, over = await exchange.piece()
        head += piece
        fields += scanner.feed(piece)
        model = next((field for field in fields if field.name == "model"), None)
    if len(head) > most:
        raise _too_large(most)
    if over and not scanner.done:
        raise refused("invalid_multipart", "The form cannot be read: it ends before its last boundary.")
    if model is None or model.file or not model.value.strip():  # 3
        text = f"'model' is required, as a field of the form within its first {format_bytes(HEAD)}: send it before the file."
        raise refused("missing_field", text, "model")
    if sum(field.name == "model" for field in fields) > 1:
        raise refused("duplicate_field", "The form names a model twice: send each field once.", "model")
    exchange.upload = Upload(exchange, scanner, len(head), most, over=over)
    fetched = next((place for field in fields if (place := media.fetched_by(field))), "")
    name = model.value.decode("utf-8", "replace")
    return Ask(model=name, fetched=fetched, model_at=(model.start, model.end)), head


def content_type(exchange: Exchange) -> bytes:
    return next((value for name, value in exchange.scope["headers"] if name == b"content-type"), b"")


def payload(exchange: Exchange, body: bytes) -> dict[str, Any]:
    """What `Upstream.request` is told of a body: all of it, or its beginning and what follows."""
    upload = exchange.upload
    if upload is None or (upload.over and upload.left() == 0):
        return {"body": body}
    left = upload.left()
    return {"body": upload.stream(body), "length": None if left is None else len(body) + left}


def _too_large(most: int) -> Refused:
    text = f"The request body is over the bound of {format_bytes(most)}: send less."
    return Refused(Kind.TOO_LARGE, "body_too_large", text)
