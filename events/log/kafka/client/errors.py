"""The errors between the log and its brokers: those that are retried, and those that are not.

Sorts Kafka's error codes, and retries attempts until a timeout. Knows nothing of connections, or of the purpose of
requests.

Every failure of the log's own connections and every error of the brokers becomes one of these:

    TryAgain          an attempt failed, or its outcome is unknown; repeating it may succeed (the class is that of
                      `events/kafka/errors.py`)
    LogUnavailable    it was retried until the timeout, or the broker refuses us; it may succeed later
      LogDenied       we lack a permission
    LogMismatch       it cannot succeed: another topic, a broker that lacks a request
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kio.schema.errors import ErrorCode
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from muster.events.kafka.errors import TryAgain
from muster.events.log.base import LogDenied, LogUnavailable

T = TypeVar("T")

RETRY_PAUSE_MIN_S = 0.02
RETRY_PAUSE_MAX_S = 0.5
"""The longest pause between attempts."""

RETRIABLE = frozenset(
    {
        ErrorCode.unknown_server_error,
        ErrorCode.corrupt_message,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.request_timed_out,
        ErrorCode.replica_not_available,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.not_controller,
        ErrorCode.concurrent_transactions,
        ErrorCode.kafka_storage_error,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.offset_not_available,
        ErrorCode.throttling_quota_exceeded,
    }
)
"""The errors after which the same request may succeed. With some it is unknown whether the first one did."""

_TOO_FEW = "fewer replicas are in sync than the topic's min.insync.replicas asks for; are all brokers up?"
_MEANINGS = {ErrorCode.not_enough_replicas: _TOO_FEW, ErrorCode.not_enough_replicas_after_append: _TOO_FEW}
"""Explanations of errors whose name in Kafka gives no hint at the cause."""

_GUARDED = {
    ErrorCode.topic_authorization_failed: "TOPIC",
    ErrorCode.transactional_id_authorization_failed: "TRANSACTIONAL_ID",
    ErrorCode.cluster_authorization_failed: "CLUSTER",
}


ALL_RIGHTS = "all rights: docs/sidecar-acls.md"


def final_error(error: ErrorCode, what: str) -> ErrorCode:
    """Return the error of a response unless it is retriable; raises TryAgain if it is.

    An unknown error of a newer broker is read as UNKNOWN_SERVER_ERROR: the outcome is then unknown.
    """
    if error in RETRIABLE:
        meaning = f": {_MEANINGS[error]}" if error in _MEANINGS else ""
        raise TryAgain(f"{what}: {error.name.upper()} ({error.value}){meaning}")
    return error


def describe_error(error: ErrorCode, operation: str, of: str, *, who: str) -> str:
    """Format an error: Kafka's name, and the missing ACL if the error is one of authorization.

    `of`: the name of the topic, or the prefix of the transactional ids. `who`: the refused principal, for the message.
    """
    name, resource = error.name.upper(), _GUARDED.get(error)
    if resource is None:
        return name
    on = resource if error is ErrorCode.cluster_authorization_failed else f"{resource} {of}"
    prefixed = "prefixed; " if error is ErrorCode.transactional_id_authorization_failed else ""
    return f"{name}: {who} lacks the ACL Allow {operation} on {on} ({prefixed}{ALL_RIGHTS})"


def refusal_error(what: str, error: ErrorCode, operation: str, of: str, *, who: str) -> LogUnavailable:
    """Build the error for a refused `what`: LogDenied if we lack the permission for `operation` (see
    `describe_error`).
    """
    kind = LogDenied if error in _GUARDED else LogUnavailable
    return kind(f"{what}: {describe_error(error, operation, of, who=who)}")


async def retry(attempt: Callable[[], Awaitable[T]], *, timeout_ms: int) -> T:
    """Retry `attempt` as long as it raises TryAgain; return its result. Raises LogUnavailable after the timeout.

    The pauses are random, up to 20 ms at first and half a second later: a new leader is elected within tens of
    milliseconds, or it takes long; and after a long wait callers continue soon after the brokers are back.
    """
    reason = "no answer"

    async def tried() -> T:  # tenacity does not await a lambda's result
        return await attempt()

    def note(state: RetryCallState) -> None:
        nonlocal reason
        reason = str(state.outcome and state.outcome.exception())

    attempts = AsyncRetrying(
        retry=retry_if_exception_type(TryAgain),
        wait=wait_random_exponential(multiplier=RETRY_PAUSE_MIN_S, max=RETRY_PAUSE_MAX_S),
        before_sleep=note,
    )
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await attempts(tried)
    except TimeoutError as error:
        raise LogUnavailable(f"given up after {timeout_ms} ms: {reason}") from error
