"""The shared broker and cluster for tests, as a pytest plugin.

It has the fixtures, and the summary lines about what was used. `conftest.py` loads it with `pytest_plugins =
("tests.brokers.fixtures",)`.

Each starts when the first test needs it, once per worker. A pytest-xdist worker has no terminal, so at its end it
passes its line to the main process.
"""

import os
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import pytest

from tests.brokers.broker import Broker
from tests.brokers.choice import running_broker
from tests.brokers.cluster import Cluster, running_cluster

OPT_OUT_VARIABLE: Final = "MUSTER_TEST_NO_KAFKA"
OPTED_OUT: Final = f"{OPT_OUT_VARIABLE}=1: NOT TESTED WITH A REAL KAFKA BROKER"

_used_key: Final = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A real broker, shared by all tests of this worker; use unique topics and groups.

    Without one the test fails, with each method that was tried, unless `MUSTER_TEST_NO_KAFKA=1`: then it is skipped.
    """
    used = _used_unless_opted_out(request)
    with running_broker() as broker:
        used.append(broker.how)
        yield broker


@pytest.fixture(scope="module")
def own_kafka_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A separate real broker for one file, for tests that read all of a broker's topics or groups."""
    used = _used_unless_opted_out(request)
    with running_broker() as broker:
        used.append(broker.how)
        yield broker


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A real cluster of three brokers, 1 to 3, shared like `kafka_broker`, for tests that end none of its nodes.

    Other tests use `running_cluster`.
    """
    used = _used_unless_opted_out(request)
    with running_cluster() as cluster:
        used.append(cluster.how)
        yield cluster


def _used_unless_opted_out(request: pytest.FixtureRequest) -> list[str]:
    if os.environ.get(OPT_OUT_VARIABLE) == "1":
        skip_loudly(request, OPTED_OUT)
    return request.config.stash.setdefault(_used_key, [])


def skip_loudly(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    """Skip, and have the summary say why, on a separate line."""
    if reason not in request.config.stash.setdefault(_used_key, []):
        add_to_summary(request, reason)
    pytest.skip(reason)


def add_to_summary(request: pytest.FixtureRequest, line: str) -> None:
    """Have the summary print this: what the tests ran against, or did not. Printed once, with a count."""
    request.config.stash.setdefault(_used_key, []).append(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In a worker: pass on what was used."""
    worker_output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output["kafka_brokers"] = session.config.stash.get(_used_key, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """In the process that has the terminal: take what a worker hands over; a crashed one hands over nothing."""
    used = node.config.stash.setdefault(_used_key, [])
    used += getattr(node, "workeroutput", {}).get("kafka_brokers", [])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which broker the tests ran against."""
    used = terminalreporter.config.stash.get(_used_key, [])
    if not used:
        return
    terminalreporter.section("Kafka broker")
    for how in dict.fromkeys(used):
        terminalreporter.line(f"{how} ({used.count(how)} started)" if used.count(how) > 1 else how)
