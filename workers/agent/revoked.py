"""What nudges said is revoked, in memory and in `<data>/cluster/revoked.json`, which the gateway watches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.logs import event
from routing.domain import revoked
from routing.domain.revoked import RevokedFile

log = logging.getLogger(__name__)


class RevokedStore:
    """Known from the start, if the file is there. `clock`: Unix time of this machine. `keep` tries a write that failed again."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._held = RevokedFile()
        self._unkept = self._said = False
        try:
            data = files.read_json(path)
            self._held = RevokedFile() if data is None else from_dict(RevokedFile, data)
        except (WireError, OSError) as error:
            event(log, "revoked_unreadable", level=logging.ERROR, path=str(path), reason=str(error))

    def take(self, hashes: Collection[str]) -> None:
        """A nudge has said that these are worth nothing from now on."""
        if hashes:
            self._change(revoked.told(self._held, hashes, now=self._clock()))
            event(log, "revocations_taken", count=len(hashes))

    def snapshot_has(self, known: Collection[str]) -> None:
        """The snapshot at hand knows these texts: what it does not know needs no mention for ever."""
        if self._held.revoked:
            self._change(revoked.needed(self._held, known, now=self._clock()))

    def keep(self) -> None:
        """Write what could not be written before."""
        if self._unkept:
            self._write()

    def _change(self, held: RevokedFile) -> None:
        if held is not self._held:
            self._held = held
            self._write()

    def _write(self) -> None:
        try:
            files.write_json(self._path, to_dict(self._held))
        except OSError as error:
            if not self._said:
                event(log, "revoked_not_kept", level=logging.ERROR, reason=str(error))
            self._unkept = self._said = True
        else:
            self._unkept = self._said = False
