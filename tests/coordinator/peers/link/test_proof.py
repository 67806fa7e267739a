"""Both ends of a link prove that they have the secret, or give the reason for a refusal."""

import msgspec
import pytest

from muster.coordinator.peers.link.peer_messages import LEVEL, Challenge, Proof
from muster.coordinator.peers.link.proof import Claim, is_proven, proof_of, refusal_of, welcome

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
CHALLENGE = Challenge(LEVEL, b"a" * 32)
NONCE = b"c" * 32
CLAIM = Claim(log="log-1", node_id=1, wanted_node_id=2)


def refused(proof: Proof, *, secret: bytes = SECRET, log: str = "log-1", node_id: int = 2) -> str | None:
    return refusal_of(secret, proof, CHALLENGE, log=log, node_id=node_id)


def test_a_peer_with_the_secret_is_accepted() -> None:
    assert refused(proof_of(SECRET, CLAIM, CHALLENGE, NONCE)) is None


def test_a_peer_with_another_secret_learns_nothing_else() -> None:
    """Neither the log's id nor node ids."""
    claim = msgspec.structs.replace(CLAIM, log="another", wanted_node_id=9)
    refusal = refused(proof_of(OTHER_SECRET, claim, CHALLENGE, NONCE))
    assert refusal is not None
    assert refusal.startswith("different peer secrets: --peer-secret-file")


@pytest.mark.parametrize(
    ("claim", "refusal"),
    [
        ({"log": "log-2"}, "different event logs: log-2 there, log-1 here"),
        ({"wanted_node_id": 3}, "wanted node 3, but this is node 2"),
        ({"node_id": 2}, "both processes have node id 2: give each its own --node-id"),
    ],
)
def test_a_peer_that_expects_another_process_is_notified(claim: dict[str, object], refusal: str) -> None:
    proof = proof_of(SECRET, msgspec.structs.replace(CLAIM, **claim), CHALLENGE, NONCE)
    assert refused(proof) == refusal


@pytest.mark.parametrize("changed", [{"log": "log-2"}, {"node_id": 5}, {"wanted_node_id": 5}, {"nonce": b"d" * 32}])
def test_nothing_of_a_proof_can_be_changed_on_the_way(changed: dict[str, object]) -> None:
    proof = msgspec.structs.replace(proof_of(SECRET, CLAIM, CHALLENGE, NONCE), **changed)
    refusal = refused(proof)
    assert refusal is not None
    assert refusal.startswith("different peer secrets")


def test_a_proof_is_good_for_one_challenge() -> None:
    """A listener cannot reuse it."""
    proof = proof_of(SECRET, CLAIM, Challenge(LEVEL, b"b" * 32), NONCE)
    assert refused(proof) is not None


def test_another_protocol_level_is_reported() -> None:
    """Only a process that has the secret learns it; the level is not part of the proof."""
    proof = msgspec.structs.replace(proof_of(SECRET, CLAIM, CHALLENGE, NONCE), level=LEVEL + 1)
    assert refused(proof) == f"messages of level {LEVEL + 1}; this version of Muster knows level {LEVEL}"


def test_the_listener_proves_itself_too() -> None:
    proof = proof_of(SECRET, CLAIM, CHALLENGE, NONCE)
    assert is_proven(SECRET, CLAIM, CHALLENGE, NONCE, welcome(SECRET, proof, CHALLENGE))
    assert not is_proven(SECRET, CLAIM, CHALLENGE, NONCE, welcome(OTHER_SECRET, proof, CHALLENGE))
    assert not is_proven(SECRET, CLAIM, CHALLENGE, b"x" * 32, welcome(SECRET, proof, CHALLENGE))


def test_a_proof_cannot_be_replayed_as_an_acceptance() -> None:
    """A listener without the secret cannot replay what it received."""
    proof = proof_of(SECRET, CLAIM, CHALLENGE, NONCE)
    assert proof.mac != welcome(SECRET, proof, CHALLENGE).mac
