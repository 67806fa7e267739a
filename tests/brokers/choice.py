"""Chooses the method of providing a broker.

It has the order of the methods, and the messages about those that did not work.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Literal

import msgspec

from tests.brokers.broker import JVM_OPTIONS, Broker, BrokerFailed, NoBroker, PortTaken
from tests.brokers.container import container_broker
from tests.brokers.process import process_broker
from tests.brokers.readiness import NotReady, wait_until_answering

How = Literal["auto", "bootstrap", "container", "process"]
Way = Callable[[Mapping[str, str], Sequence[str]], AbstractContextManager[Broker]]

BOOTSTRAP_VARIABLE: Final = "MUSTER_TEST_BOOTSTRAP"
STARTS_PER_WAY: Final = 3
NAMED_ANSWERS_WITHIN_S: Final = 15


@contextmanager
def running_broker(
    *, settings: Mapping[str, str] | None = None, how: How = "auto", jvm_options: Sequence[str] = JVM_OPTIONS
) -> Iterator[Broker]:
    """A broker that responds, while the block lasts.

    `settings` are the broker's own (`server.properties`), over the test settings; they are not applied to an external
    broker (`bootstrap`). `how` selects one method; by default the first that works is used. Raises `NoBroker` with each
    method that was tried and the reason of its failure.
    """
    with ExitStack() as stack:
        yield _first_that_works(stack, settings or {}, jvm_options, ways_to_try(how))


def ways_to_try(how: How) -> list[tuple[str, Way]]:
    """The methods that `how` allows, in order. If the user has named a broker, only that one is used."""
    if how == "auto":
        if os.environ.get(BOOTSTRAP_VARIABLE):
            return [("bootstrap", WAYS["bootstrap"])]
        return [("container", WAYS["container"]), ("process", WAYS["process"])]
    return [(how, WAYS[how])]


@contextmanager
def named_broker(_settings: Mapping[str, str], _jvm_options: Sequence[str]) -> Iterator[Broker]:
    """The broker that `MUSTER_TEST_BOOTSTRAP` names."""
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE, "")
    first = bootstrap.partition(",")[0]
    host, _, port = first.rpartition(":")
    if not host or not port.isdecimal():
        raise BrokerFailed(f"{BOOTSTRAP_VARIABLE} must be host:port, and is {bootstrap!r}")
    try:
        wait_until_answering(first, alive=lambda: True, ready_within_s=NAMED_ANSWERS_WITHIN_S)
    except NotReady as error:
        raise BrokerFailed(f"the broker that {BOOTSTRAP_VARIABLE} names: {error}") from error
    yield Broker(bootstrap=bootstrap, how=f"the broker at {bootstrap}, named by {BOOTSTRAP_VARIABLE}")


WAYS: Final[Mapping[str, Way]] = {
    "bootstrap": named_broker,
    "container": container_broker,
    "process": process_broker,
}


def _first_that_works(
    stack: ExitStack, settings: Mapping[str, str], jvm_options: Sequence[str], ways: list[tuple[str, Way]]
) -> Broker:
    failures: list[str] = []
    for name, way in ways:
        try:
            broker = _started(stack, settings, jvm_options, way)
        except BrokerFailed as error:
            failures.append(f"{name}: {error}")
            continue
        passed_over = "".join(f"; not {failure.splitlines()[0]}" for failure in failures)
        return msgspec.structs.replace(broker, how=broker.how + passed_over)
    raise NoBroker("no Kafka broker can be had.\n" + "\n".join(f"* {failure}" for failure in failures))


def _started(stack: ExitStack, settings: Mapping[str, str], jvm_options: Sequence[str], way: Way) -> Broker:
    for _ in range(STARTS_PER_WAY - 1):
        try:
            return stack.enter_context(way(settings, jvm_options))
        except PortTaken:
            continue
    return stack.enter_context(way(settings, jvm_options))
