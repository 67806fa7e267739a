"""Muster for real clients: one process for each module, on a file log."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.consumers import LIBRARIES, RunningConsumer
from tests.clients.foreign.fixtures import foreign_library  # noqa: F401 -- a fixture of all tests of clients
from tests.muster_process import MusterProcess, running_muster, sqlite_log

TOPIC = "orders"
PARTITIONS = 6


@pytest.fixture(scope="module")
def muster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MusterProcess]:
    """A coordinator for one module."""
    directory: Path = tmp_path_factory.mktemp("muster")
    with running_muster(log=sqlite_log(directory), topics=[f"{TOPIC}:{PARTITIONS}"]) as running:
        yield running


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.__name__)
def library(request: pytest.FixtureRequest) -> type[RunningConsumer]:
    """The class of a library's consumer."""
    chosen: type[RunningConsumer] = request.param
    return chosen
