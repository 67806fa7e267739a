"""A coordinator for ownership groups: a separate Muster, in the role of the broker."""

from collections.abc import Iterator

import pytest

from tests.muster_process import TEST_CONFIG, MusterProcess, running_muster


@pytest.fixture
def coordinator() -> Iterator[MusterProcess]:
    with running_muster(log="memory:", config={**TEST_CONFIG, "group.max.session.timeout.ms": "10000"}) as running:
        yield running
