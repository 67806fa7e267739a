"""The pair of servers that schedules are played on.

Kafka has one thread for each kind of work, and appends at once: what was asked first is answered first, so that a
question that was asked later tells that an earlier one is parked.
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
    # No sweep takes an empty group away in the middle of a long run.
    "offsets.retention.check.interval.ms": "86400000",
}
_ONE_BY_ONE: Final[Mapping[str, str]] = {
    "num.network.threads": "1",
    "num.io.threads": "1",
    "group.coordinator.threads": "1",
    "group.coordinator.append.linger.ms": "0",
}


def running_kafka() -> AbstractContextManager[Broker]:
    """A broker of our own, since these settings are not for everybody."""
    return running_broker(how="process", settings={**SETTINGS, **_ONE_BY_ONE})


@contextmanager
def running_pair(*, sidecar: bool) -> Iterator[Pair]:
    """A Kafka and a Muster of the same settings, which may stand in front of another Kafka.

    That one lets shadows in at once: their initial rebalance would be one more timer that nobody sees.
    """
    with ExitStack() as stack:
        broker = stack.enter_context(running_kafka())
        if not sidecar:
            yield stack.enter_context(pair_with(broker, SETTINGS))
            return
        settings = {**SETTINGS, **_ONE_BY_ONE, "group.initial.rebalance.delay.ms": "0"}
        upstream = stack.enter_context(running_broker(how="process", settings=settings))
        yield stack.enter_context(pair_through_sidecar(broker, SETTINGS, upstream=upstream))
