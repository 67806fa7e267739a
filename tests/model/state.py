"""One state of the world: plain values, shared between states and never changed.

A `Process` knows what a client knows. `waiting` is its request that was not answered yet; `proposed` is the member id
that was proposed for its join without a member id, until it receives the response: an edge would send that join again.
A request in `open` is parked at the owner, whether its sender still waits for it or not.
"""

import msgspec

from muster.coordinator.group.commands import JoinGroup, SyncGroup
from muster.coordinator.group.soft_state import SoftState
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId, MemberId
from muster.events.state import NO_GENERATION, Group


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """`is_static`: it takes one of the instance ids when it starts. `told`: the members that it has to assign, if it
    leads.
    """

    name: str
    is_static: bool
    version: int
    instance: GroupInstanceId | None = None
    member_id: MemberId = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    told: tuple[MemberId, ...] = ()
    waiting: int | None = None
    proposed: MemberId = UNKNOWN_MEMBER_ID

    @property
    def is_blank(self) -> bool:
        """True if it knows nothing and has no open request, like a process that was never started."""
        return not self.member_id and not self.proposed and self.waiting is None

    def blank(self) -> "Process":
        return Process(name=self.name, is_static=self.is_static, version=self.version)


class Open(msgspec.Struct, frozen=True):
    """A parked request, its sender, and its member."""

    command: JoinGroup | SyncGroup
    process: int
    member_id: MemberId


class State(msgspec.Struct, frozen=True, kw_only=True):
    """`fenced`: every member id that was ever replaced. `serial` numbers requests and member ids."""

    group: Group | None = None
    soft: SoftState
    processes: tuple[Process, ...]
    open: dict[int, Open] = {}
    fenced: frozenset[MemberId] = frozenset()
    now_ms: int = 0
    serial: int = 1
    incarnation_max: int = 0
