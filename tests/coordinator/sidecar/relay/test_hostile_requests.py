"""Through the sidecar, too, one client's request does not block the others, whatever it contains.

Covers every API that is handled here, and those whose responses are rewritten. The broker is a standalone coordinator
in a separate thread, which answers every request; the sidecar has its own groups.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import AnyRequest
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.outcomes import Outcome
from muster.coordinator.service import ListedGroup
from muster.coordinator.sidecar.apis.registry import handled_apis
from muster.coordinator.sidecar.groups.in_flight_commits import InFlightCommits
from muster.coordinator.sidecar.groups.owned_groups import own_groups
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.sidecar.relay.intercept import SidecarApi
from muster.coordinator.wire.api import Offered
from muster.coordinator.wire.bounds import bound_of
from muster.coordinator.wire.registry import APIS
from muster.events.ids import GroupId
from muster.events.state import GroupState
from tests.coordinator.hostile import (
    HELD_S_MAX,
    as_many_as_allowed,
    every_array,
    exchange,
    four_megabytes,
    smallest_arrays,
)
from tests.coordinator.longest_callback import longest_callback
from tests.coordinator.serving import serving
from tests.coordinator.sidecar.apis.test_offset_commit import SteadyShadows
from tests.coordinator.sidecar.relaying import Relay, relaying
from tests.coordinator.wire.smallest import Path

METADATA, FIND_COORDINATOR = 3, 10
HANDLED = (8, 11, 13, 14, 15, 16, 32, 42, 44, 47)
THROUGH = [APIS[key] for key in (*HANDLED, METADATA, FIND_COORDINATOR)]
TXN_OFFSET_COMMIT = Offered(key=28, name="TxnOffsetCommit", versions=range(6))


@contextmanager
def broker_in_a_thread() -> Iterator[Any]:
    """Listens where a broker would."""
    ready, at = threading.Event(), SimpleNamespace(port=0)
    stops: list[Any] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with serving() as muster:
            at.port = muster.server.port
            service = muster.server._service  # clients connect to the addresses in Metadata
            service.cluster = service.cluster.advertised_at("127.0.0.1", at.port)
            stops.append((asyncio.get_running_loop(), stop))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield at
    finally:
        loop, stop = stops[0]
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


def refuses(command: AnyRequest) -> Outcome:
    """No member is known here."""
    return error_replies(command, ErrorCode.unknown_member_id)[0].outcome


class Shadows(SteadyShadows):
    """No group upstream has a shadow."""

    def group_ids(self) -> list[GroupId]:
        return []

    def is_in(self, _group_id: GroupId) -> bool:
        return False

    def may_have_shadow(self, _group_id: GroupId) -> bool:
        return False


def apis(relay: Relay) -> Iterable[SidecarApi]:
    """Every API that a sidecar handles."""
    relay.groups.outcome = refuses
    relay.groups.listed = [
        ListedGroup(group_id=GroupId(f"group-{n}"), protocol_type="", state=GroupState.EMPTY) for n in range(20_000)
    ]
    shadows: Any = Shadows()
    return handled_apis(
        relay.service,
        relay.router,
        relay.moves,
        shadows,
        relay.relayed,
        reserved=ReservedNames(None),
        in_flight=InFlightCommits(resume_timeout_s=0),
        list_owned=own_groups(relay.service, shadows),
        would_refuse=lambda _: False,
        monotonic_ms=lambda: 0,
    ).values()


@asynccontextmanager
async def sidecar() -> AsyncIterator[Relay]:
    with broker_in_a_thread() as broker:
        async with relaying({1: broker}, more=apis, frame_bytes_max=104_857_600) as relay:
            yield relay


async def held_by(content: bytes) -> tuple[bytes, Any]:
    """The response, and the longest callback."""
    async with sidecar() as relay:
        with longest_callback() as longest:
            answer = await asyncio.to_thread(exchange, relay.port_of(1), content)
    return answer, longest


@pytest.mark.parametrize(("api_key", "version", "path"), every_array([*THROUGH, TXN_OFFSET_COMMIT]))
async def test_four_megabytes_of_the_smallest_entries_block_no_others(api_key: int, version: int, path: Path) -> None:
    _, longest = await held_by(four_megabytes(api_key, version, path))
    assert longest.seconds < HELD_S_MAX, longest


@pytest.mark.parametrize(("api_key", "version", "path"), smallest_arrays([*THROUGH, TXN_OFFSET_COMMIT]))
async def test_the_allowed_number_of_entries_blocks_no_others(api_key: int, version: int, path: Path) -> None:
    answer, longest = await held_by(as_many_as_allowed(api_key, version, path))
    assert answer[:4] == b"\x00\x00\x00\x01"
    assert longest.seconds < HELD_S_MAX, longest


async def test_every_api_that_is_handled_has_a_bound_of_its_own() -> None:
    """An API without a line in wire/bounds.py would get the default of those that are never decoded."""
    async with sidecar() as relay:
        handled = [api for api in apis(relay) if api.handle is not None]
    assert [api.name for api in handled if not bound_of(api.key).reason.startswith(f"{api.name}: ")] == []
