"""How a process is configured, and how slow it is."""

from typing import Any, Self

import msgspec

from muster.events.ids import GroupId
from muster.replay.fleet.simulation.world.rules import GROUP_ID

HOSTS = 1_024
"""The addresses of a group in a fleet, so that no two share a host."""


class PlaceAndTime(msgspec.Struct, frozen=True, kw_only=True):
    """The place and time of a group. `began_ms`: wall clock; None: drawn by lot.

    `first_host`: the number of its first host within 10.0.0.0/8, of HOSTS; None: hosts as in every case of the judge.
    """

    group_id: GroupId = GROUP_ID
    began_ms: int | None = None
    first_host: int | None = None

    def host(self, number: int) -> str:
        """The host of this number, from 0 on: 0 is that of all who share one. As Kafka prints it."""
        if self.first_host is None:
            return f"/10.0.{number // 200}.{number % 200 + 1}" if number else "/127.0.0.1"
        address = (self.first_host + number % HOSTS) % 2**24
        return f"/10.{address >> 16}.{address >> 8 & 255}.{address & 255}"


NOWHERE = PlaceAndTime()


class Setup(msgspec.Struct, frozen=True, kw_only=True):
    """How a process is configured and how slow it is; times in ms. `name` is the judge's, the same after a restart."""

    name: str
    client_id: str
    host: str
    instance: str | None
    library: str
    version: int
    session_ms: int
    rebalance_ms: int
    assignors: tuple[str, ...]
    topics: tuple[str, ...] = ("orders",)
    heartbeat_ms: int = 3_000
    poll_ms: int = 400
    """The longest that it takes to its next poll, at which it rejoins."""
    assign_ms: int = 30

    @property
    def tells_reasons(self) -> bool:
        return self.library == "java" and self.version >= 8

    def but(self, **fields: Any) -> Self:
        """The same but for these fields."""
        return msgspec.structs.replace(self, **fields)
