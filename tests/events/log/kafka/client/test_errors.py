"""The errors for a broker's refusals, and the pauses between attempts."""

import asyncio
import random
from itertools import pairwise

import pytest
from kio.schema.errors import ErrorCode

from muster.events.kafka.errors import TryAgain
from muster.events.log.base import LogDenied, LogUnavailable
from muster.events.log.kafka.client.errors import final_error, refusal_error, retry
from muster.events.log.kafka.names import owner_id_prefix
from tests.simulation.virtual_time import simulate

TOO_FEW = "fewer replicas are in sync than the topic's min.insync.replicas asks for; are all brokers up?"


@pytest.mark.parametrize(
    ("error", "of", "said"),
    [
        (ErrorCode.topic_authorization_failed, "ev", "TOPIC ev ("),
        (
            ErrorCode.transactional_id_authorization_failed,
            owner_id_prefix("ev_fencing_probe"),
            "TRANSACTIONAL_ID muster-ev (prefixed; ",
        ),
        (ErrorCode.cluster_authorization_failed, "ev", "CLUSTER ("),
    ],
)
def test_a_missing_right_is_named_as_it_has_to_be_given(error: ErrorCode, of: str, said: str) -> None:
    """The resource with its name, where it has one; and where all rights are listed."""
    denied = refusal_error("this", error, "WRITE", of, who="user alice (sasl.username)")
    assert isinstance(denied, LogDenied)
    assert str(denied).endswith(
        f": user alice (sasl.username) lacks the ACL Allow WRITE on {said}all rights: docs/sidecar-acls.md)"
    )


def test_errors_that_no_permission_would_fix_are_not_denials() -> None:
    """It must not lead to the search for a missing ACL; the error has Kafka's name."""
    refusal = refusal_error("this", ErrorCode.invalid_required_acks, "WRITE", "ev", who="user alice (sasl.username)")
    assert not isinstance(refusal, LogDenied)
    assert str(refusal) == "this: INVALID_REQUIRED_ACKS"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (6, "this: NOT_LEADER_OR_FOLLOWER (6)"),
        (19, f"this: NOT_ENOUGH_REPLICAS (19): {TOO_FEW}"),
        (20, f"this: NOT_ENOUGH_REPLICAS_AFTER_APPEND (20): {TOO_FEW}"),
    ],
)
def test_transient_errors_are_retried_with_an_explanation(code: int, told: str) -> None:
    """Including an error of a newer broker: the outcome of the request is unknown."""
    with pytest.raises(TryAgain) as again:
        final_error(ErrorCode(code), "this")
    assert str(again.value) == told


@pytest.mark.parametrize("error", [ErrorCode.none, ErrorCode.message_too_large, ErrorCode.topic_authorization_failed])
def test_permanent_errors_are_raised_unchanged(error: ErrorCode) -> None:
    assert final_error(error, "this") is error


def test_pauses_are_short_at_first_and_never_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader is there within tens of milliseconds, or not for long. These are the longest: they are random."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    tried: list[float] = []

    async def attempt() -> None:
        tried.append(asyncio.get_running_loop().time())
        raise TryAgain("not yet")

    async def main() -> None:
        with pytest.raises(LogUnavailable, match="given up after 3000 ms: not yet"):
            await retry(attempt, timeout_ms=3_000)

    simulate(main())
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(tried)]
    assert pauses[:7] == [0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5]
