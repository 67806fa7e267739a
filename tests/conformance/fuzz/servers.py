"""The pair of servers that schedules are played on.

Kafka has one thread for each kind of work, and appends at once: responses come in order, so the response to a later
request proves that an earlier one is parked.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final

from tests.brokers.broker import Broker
from tests.brokers.choice import running_broker
from tests.conformance.servers import Pair, pair_through_sidecar, pair_with

INITIAL_DELAY_MS: Final = 1_500
SIZE_MAX: Final = 5
METADATA_MAX: Final = 64

SETTINGS: Final[Mapping[str, str]] = {
    "group.initial.rebalance.delay.ms": str(INITIAL_DELAY_MS),
    "group.max.size": str(SIZE_MAX),
    "offset.metadata.max.bytes": str(METADATA_MAX),
    # No sweep removes an empty group during a long run.
    "offsets.retention.check.interval.ms": "86400000",
}
_ONE_BY_ONE: Final[Mapping[str, str]] = {
    "num.network.threads": "1",
    "num.io.threads": "1",
    "group.coordinator.threads": "1",
    "group.coordinator.append.linger.ms": "0",
}


def running_kafka() -> AbstractContextManager[Broker]:
    """A separate broker, since these settings do not suit other tests."""
    return running_broker(how="process", settings={**SETTINGS, **_ONE_BY_ONE})


@contextmanager
def running_pair(*, sidecar: bool) -> Iterator[Pair]:
    """A Kafka and a Muster with the same settings, the latter optionally in front of another Kafka.

    That one admits shadows at once: their initial rebalance would be another, invisible timer.
    """
    with ExitStack() as stack:
        broker = stack.enter_context(running_kafka())
        if not sidecar:
            yield stack.enter_context(pair_with(broker, SETTINGS))
            return
        settings = {**SETTINGS, **_ONE_BY_ONE, "group.initial.rebalance.delay.ms": "0"}
        upstream = stack.enter_context(running_broker(how="process", settings=settings))
        yield stack.enter_context(pair_through_sidecar(broker, SETTINGS, upstream=upstream))
