"""Who passed a call on: what its marks say, whether its body is the signed one, and why a call is refused.

What a call carries beside the headers of cluster/domain/signing.py:

    x-llmgw-hop        `handed` (edge to router) or `forwarded` (from there on); without it the call is passed on for nobody
    x-llmgw-key        id of the API key that the edge has checked
    x-llmgw-project    its project
    x-llmgw-session    what keeps a conversation on one replica

These four are covered by the signature where there is a hop. All are dropped from what clients send.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cluster.domain import signing
from llmgw_site.lib.errors import Kind, Refused

HOP, KEY, PROJECT, SESSION = "x-llmgw-hop", "x-llmgw-key", "x-llmgw-project", "x-llmgw-session"


class Marks(NamedTuple):
    """What a request that is passed on says of itself."""

    hop: str = ""
    key: str = ""
    project: str = ""
    session: str = ""


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A node whose signature holds; its body is checked by `check` once it is there."""

    node_id: str
    marks: Marks
    call: signing.Call

    def check(self, body: bytes | None) -> None:
        """Raises Refused `body_unsigned` or `body_changed`. None: of a form with files, which streams and cannot be signed."""
        wrong = signing.verify_body(self.call, body, allow_unsigned=body is None)
        if wrong is not None:
            raise refusal(self.node_id, wrong)


_WORDS = {
    "node_signature_required": "only nodes call here, with a signature: clients use the client listener with their API key",
    "node_unknown": "it is not of this cluster, or this node has not heard of it yet",
    "node_removed": "it was removed from the cluster: let it join again",
    "node_certificate_required": "a call by TLS needs the node's certificate",
    "node_certificate_wrong": "the certificate is another node's, or was revoked",
    "bad_signature": "it is signed with another key, or was changed on its way",
    "clock_skew": f"it was made more than {signing.WINDOW:.0f} s of cluster time away",
    "call_repeated": "this very call was met before, or was made before this node's gateway began",
    "body_unsigned": "its body must be signed",
    "body_changed": "its body is not the one that was signed",
}


def refusal(node_id: str, code: str) -> Refused:
    """401 for a call of a node."""
    who = f"The call of node {node_id[:40]}" if node_id else "The call"
    return Refused(Kind.UNAUTHORIZED, code, f"{who} was refused: {_WORDS[code]}.")
