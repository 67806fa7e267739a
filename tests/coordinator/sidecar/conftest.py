"""The event loops for tests of sockets: the sidecar runs on uvloop, whose transports differ in details."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

ON_BOTH = {"test_relay"}


def pytest_asyncio_loop_factories(
    config: pytest.Config,
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Both loops for the modules named above."""
    factories: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    if item.path.stem in ON_BOTH:
        factories["uvloop"] = uvloop.new_event_loop
    return factories
