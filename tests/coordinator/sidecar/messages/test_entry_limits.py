"""Relayed requests with many entries: with too many of them the broker gets none."""

import pytest
from kio.index import load_request_schema

from muster.coordinator.sidecar.messages.entry_limits import OFFSET_FETCH
from muster.coordinator.wire.api import Fault
from muster.coordinator.wire.bounds import bound_of
from tests.coordinator.kio_client import with_length
from tests.coordinator.sidecar.relaying import relaying
from tests.coordinator.sidecar.scripted_broker import scripted_broker
from tests.coordinator.wire.smallest import arrays_of, request_of

METADATA, FIND_COORDINATOR = 3, 10
VERSIONS = [
    *((METADATA, version) for version in range(14)),
    *((OFFSET_FETCH, version) for version in (8, 9, 10)),
    *((FIND_COORDINATOR, version) for version in (4, 5, 6)),
]


@pytest.mark.parametrize(("api_key", "version"), VERSIONS)
async def test_a_request_with_too_many_entries_reaches_no_broker(api_key: int, version: int) -> None:
    path = next(arrays_of(load_request_schema(api_key, version)))
    entries_max = bound_of(api_key).entries_max
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        client = await relay.connect(1)
        client.send(with_length(request_of(api_key, version, path, entries_max + 1)))
        assert await client.rest() == b""
        assert relay.metrics.protocol_errors == {Fault.TOO_MANY_ENTRIES: 1}
        assert relay.relayed.bytes_to_brokers == 0


@pytest.mark.parametrize(("api_key", "version"), [*VERSIONS, (FIND_COORDINATOR, 0), (FIND_COORDINATOR, 3)])
@pytest.mark.parametrize("is_full", [True, False], ids=["as many as are allowed", "none"])
async def test_allowed_requests_are_relayed_unchanged(api_key: int, version: int, is_full: bool) -> None:
    path = next(arrays_of(load_request_schema(api_key, version)), ())
    content = with_length(request_of(api_key, version, path, bound_of(api_key).entries_max if is_full else 0))
    async with scripted_broker() as broker, relaying({1: broker}) as relay:
        broker.script = lambda requested: requested.connection.hang_up()
        client = await relay.connect(1)
        client.send(content)
        assert await client.rest() == b""
        assert relay.relayed.bytes_to_brokers == len(content)
        assert not relay.metrics.protocol_errors
