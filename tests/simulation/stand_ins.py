"""Stand-ins for a machine's clock, garbage collector and metrics, where the code under test uses them directly.

They replace everything that would make a schedule depend on the machine, or would outlive it.
"""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import msgspec

from muster.coordinator import assembly, garbage, partition_sharing
from muster.coordinator.load import slices
from muster.coordinator.load.turns import Turns
from muster.coordinator.net import listening
from muster.coordinator.net.listening import Listening
from muster.coordinator.peers.link import peer_connection, peer_listener
from muster.coordinator.random_uuids import RandomUuids
from muster.coordinator.runtime.ownership import followed_topic
from muster.coordinator.runtime.partition.owner import Owner
from muster.coordinator.sidecar import group_parts, serve
from muster.coordinator.sidecar.forwarding import assembly as forwarding_assembly
from muster.coordinator.sidecar.forwarding import frontend
from muster.coordinator.sidecar.relay import listeners
from tests.simulation.world import SimulatedLoop

_NO_CLOCK: Final = SimpleNamespace(perf_counter=lambda: 0.0)
"""Work takes no time here, or a schedule would depend on the machine's speed."""
_LOOPS_CLOCK: Final = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())


class _RunningClock:
    """The clocks of the process that runs."""

    def monotonic_ms(self) -> int:
        return _process().clock.monotonic_ms()

    def wall_ms(self) -> int:
        return _process().clock.wall_ms()


def _process() -> SimulatedLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


class _Bound:
    """A listening socket of the simulated network, before it accepts."""

    def __init__(self, host: str, port: int) -> None:
        self.at = host, port

    def getsockname(self) -> tuple[str, int]:
        return self.at

    def __enter__(self) -> "_Bound":
        return self

    def __exit__(self, *_: object) -> None:
        """It is the network's."""


def _bound(_listening: object, _family: object, host: str, port: int) -> _Bound:
    return _Bound(host, port)


def _accepting(bound: _Bound, new_connection: Callable[[], asyncio.Protocol], *_: object) -> Any:
    return _process().sockets.listen(new_connection, *bound.at)


def _drawn_uuid(_uuids: object) -> str:
    return f"{random.getrandbits(64):016x}"


def _boot_ms() -> int:
    return _process().clock.boot_ms()


def _new_owner(*arguments: Any, **named: Any) -> Owner:
    """The owner of a sidecar, by its name in the simulation."""
    return msgspec.structs.replace(
        assembly.new_owner(*arguments, **named),
        name=_process().name,
        version="simulated",
        boot_ms=_process().clock.boot_ms,
        turns=Turns(clock=lambda: 0.0),
    )


_SOCKETS: Final = SimpleNamespace(create_server=lambda at, **_options: _Bound(*at))
_NO_COLLECTOR: Final = SimpleNamespace(
    disable=lambda: None, freeze=lambda: None, enable=lambda: None, set_threshold=lambda *_: None
)
"""Nothing that a schedule has made may stay when it is over."""


@contextmanager
def simulated(seed: int) -> Iterator[None]:
    """Draw all random numbers of the process from this seed, and use nothing of the machine, within the context."""
    random.seed(seed)  # the pauses between attempts
    with ExitStack() as stack:
        for module in (slices, peer_connection):
            stack.enter_context(patch.object(module, "time", _NO_CLOCK))
        for module in (garbage, followed_topic):
            stack.enter_context(patch.object(module, "gc", _NO_COLLECTOR))
        stack.enter_context(patch.object(frontend, "time", _LOOPS_CLOCK))
        stack.enter_context(patch.object(RandomUuids, "next", _drawn_uuid))
        stack.enter_context(patch.object(serve, "SystemClock", _RunningClock))
        stack.enter_context(patch.object(group_parts, "new_owner", _new_owner))
        stack.enter_context(patch.object(forwarding_assembly, "boot_clock_ms", _boot_ms))
        stack.enter_context(patch.object(listeners, "Turns", partial(Turns, clock=lambda: 0.0)))
        stack.enter_context(patch.object(Listening, "_bound", _bound))
        stack.enter_context(patch.object(peer_listener, "socket", _SOCKETS))
        for module in (listening, peer_listener):
            stack.enter_context(patch.object(module, "PlainListener", _accepting))
        for module in (partition_sharing, group_parts, forwarding_assembly):
            stack.enter_context(patch.object(module, "collect", lambda *_: None))
        yield
