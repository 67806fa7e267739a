"""Each end of a link proves that it has the secret without sending it: by an HMAC over the nonces of both.

Pure: nonces come from the caller. The accepting end first sends a nonce; the connecting end responds with its own and a
proof over both; then the accepting end proves itself over both too. A proof includes the role, so that it cannot be
replayed as the other end's, and all claims, so that they cannot be changed in transit.
"""

import hmac
from typing import Final

import msgspec

from muster.coordinator.peers.link.peer_messages import HIGHEST_TAG, LEVEL, Challenge, Proof, Welcome

NONCE_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16


class BadPeerSecret(Exception):
    """The secret cannot be used; the message names the setting and the file."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of one end of a connection: the log's identity, its own node id, and the node id that it expects."""

    log: str
    node_id: int
    wanted_node_id: int


def proof_of(secret: bytes, claim: Claim, challenge: Challenge, nonce: bytes) -> Proof:
    """Answer a challenge, with our own nonce."""
    return Proof(
        level=LEVEL,
        log=claim.log,
        node_id=claim.node_id,
        wanted_node_id=claim.wanted_node_id,
        nonce=nonce,
        mac=_mac(secret, "connects", claim, challenge.nonce, nonce),
        highest_tag=HIGHEST_TAG,
    )


def refusal_of(secret: bytes, proof: Proof, challenge: Challenge, *, log: str, node_id: int) -> str | None:
    """Return a human-readable reason to refuse the connecting end, or None.

    The secret is checked first, so that a foreign client learns nothing more. `log`, `node_id`: of the accepting end.
    """
    claim = Claim(log=proof.log, node_id=proof.node_id, wanted_node_id=proof.wanted_node_id)
    if not hmac.compare_digest(proof.mac, _mac(secret, "connects", claim, challenge.nonce, proof.nonce)):
        return "different peer secrets: --peer-secret-file must have the same contents for all processes of a log"
    if proof.level != LEVEL:
        return f"messages of level {proof.level}; this version of Muster knows level {LEVEL}"
    if proof.log != log:
        return f"different event logs: {proof.log} there, {log} here"
    if proof.wanted_node_id != node_id:
        return f"wanted node {proof.wanted_node_id}, but this is node {node_id}"
    if proof.node_id == node_id:
        return f"both processes have node id {node_id}: give each its own --node-id"
    return None


def welcome(secret: bytes, proof: Proof, challenge: Challenge) -> Welcome:
    """Create the accepting end's proof."""
    claim = Claim(log=proof.log, node_id=proof.node_id, wanted_node_id=proof.wanted_node_id)
    return Welcome(_mac(secret, "accepts", claim, challenge.nonce, proof.nonce))


def is_proven(secret: bytes, claim: Claim, challenge: Challenge, nonce: bytes, welcome: Welcome) -> bool:
    """Return whether the accepting end has the secret."""
    return hmac.compare_digest(welcome.mac, _mac(secret, "accepts", claim, challenge.nonce, nonce))


def _mac(secret: bytes, role: str, claim: Claim, accepts_nonce: bytes, connects_nonce: bytes) -> bytes:
    said = msgspec.msgpack.encode(
        ["muster-peer", LEVEL, role, claim.log, claim.node_id, claim.wanted_node_id, accepts_nonce, connects_nonce]
    )
    return hmac.digest(secret, said, "sha256")
