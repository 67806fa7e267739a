"""The loop of simulations itself."""

import asyncio
import os
import resource
from collections.abc import Iterator

import pytest

from tests.simulation.virtual_time import simulate

SELECT_MAX = 1_024


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """A process that holds as many descriptors as select() takes, as a long test run may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * SELECT_MAX), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(SELECT_MAX)]
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_open_files")
def test_a_simulation_runs_in_a_process_with_many_open_files() -> None:
    simulate(asyncio.sleep(60))
