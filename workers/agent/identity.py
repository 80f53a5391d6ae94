"""This node among its controllers: `<data>/node/identity.json`, 0600, because the private key stands in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cluster.domain import signing
from cluster.wire import WireError, from_dict, to_dict
from llmgw_site.lib import files


class NoIdentity(Exception):
    """This node is not enrolled, or its identity cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """`joined` and what follows: written by `llmgw node join`; they stand in for settings that are not given."""

    node_id: str
    private_key: str = field(repr=False)
    controller_public_key: str
    joined: bool = False  # a cluster that another machine's controllers keep
    name: str = ""
    address: str = ""  # to advertise, where the administrator named one; empty: found by itself
    host: str = ""  # that the node listener binds
    controllers: tuple[str, ...] = ()  # node addresses

    @classmethod
    def read(cls, path: Path) -> Identity:
        """Raises NoIdentity with what to do."""
        try:
            data = files.read_json(path)
        except OSError as error:
            raise NoIdentity(
                f"{path} cannot be read ({error.strerror}): give it to the user that runs the agent"
            ) from None
        if data is None:
            raise NoIdentity(
                f"{path} does not exist or is no JSON: enrol this node first "
                "(`llmgw up` makes a cluster of its own, `llmgw node join` enters another)"
            )
        try:
            found = from_dict(cls, data)
            signing.pairwise_key(found.private_key, found.controller_public_key)
        except (WireError, ValueError) as error:
            raise NoIdentity(f"{path} is damaged ({error}): enrol this node anew") from None
        return found

    def write(self, path: Path) -> None:
        files.write_json(path, to_dict(self))

    @property
    def key(self) -> bytes:
        """The key that this node shares with the controllers."""
        return signing.pairwise_key(self.private_key, self.controller_public_key)
