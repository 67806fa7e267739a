"""The fast path: a heartbeat whose bytes are those of the member's last accepted one is answered without decoding.

One cache belongs to one connection. It holds, for each member that was heard on that connection, the bytes of its last
accepted heartbeat (correlation id aside), the ticket that says whether the same heartbeat would be accepted again, and
the bytes of the answer. What was cached under an older generation is replaced with the next accepted heartbeat.

A client has one member, and what its connection caches is not counted. A connection that speaks for many, as a proxy's
does, draws on memory that all connections share; without it most of its heartbeats would be decoded.
"""

from collections.abc import Callable

from muster.coordinator.service import AcceptingTicket
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.messages import HEADER_START_BYTES, KEY_AND_VERSION
from muster.events.ids import GroupId, MemberId

HEARTBEAT_BYTES_MAX = 1_024
"""Longer heartbeats are not cached, so that no client fills the memory with them."""

UNSHARED_BYTES_MAX = 16_384
"""The bytes that each connection caches by itself, some 20 members: it may hold as much uncounted (FREE_BYTES)."""

SHARED_BYTES_MAX = 16_777_216
"""The bytes that all connections cache beyond that, some 20,000 members."""

_ENTRY_BYTES, _COPIES = 512, 2
"""The bytes of an entry: so many, and those of the heartbeat twice, since it has both ids once more."""


_Member = tuple[GroupId, MemberId]
_Entry = tuple[Callable[[int], bool], bytes, _Member]
_NO_ENTRIES: dict[bytes, _Entry] = {}


class SharedBytes:
    """The memory that the caches of all connections share."""

    def __init__(self, bytes_max: int = SHARED_BYTES_MAX) -> None:
        self.left_bytes = bytes_max

    def take(self, size: int) -> bool:
        """Take so many bytes, or give them back where it is negative; False if there are not as many left."""
        if size > self.left_bytes:
            return False
        self.left_bytes -= size
        return True


class HeartbeatCache:
    """`hits` counts the heartbeats that were answered from here."""

    def __init__(self, shared: SharedBytes) -> None:
        self.hits = 0
        self._shared = shared
        self._entries: dict[int, dict[bytes, _Entry]] = {}  # by version, then by what follows the correlation id
        self._members: dict[_Member, tuple[int, bytes]] = {}
        self._bytes = 0
        self._is_ended = False

    def answer(self, api_version: int, rest: bytes, now_ms: int) -> bytes | None:
        """Return the answer to a known heartbeat, without its correlation id; None where the rules have to decide.

        `rest` is what follows the correlation id in the request, `now_ms` when it arrived (monotonic).
        """
        entry = self._entries.get(api_version, _NO_ENTRIES).get(rest)
        if entry is None:
            return None
        accept, payload, member = entry
        if accept(now_ms):
            self.hits += 1
            return payload
        self._forget(member)
        return None

    def keep(self, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: AcceptingTicket) -> bool:
        """Cache an accepted heartbeat, and return whether it is; `frame` is the request without its length.

        The oldest ones make room.
        """
        member = (group_id, member_id)
        self._forget(member)
        if len(frame) > HEARTBEAT_BYTES_MAX or self._is_ended:
            return False
        _, api_version = KEY_AND_VERSION.unpack_from(frame)
        rest = frame[HEADER_START_BYTES:]
        while not self._hold(self._bytes + _size(rest)):
            self._forget(next(iter(self._members)))
        self._members[member] = (api_version, rest)
        self._entries.setdefault(api_version, {})[rest] = (ticket.accept, heartbeat.accepted(api_version), member)
        return True

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self._members.clear()
        self._hold(0)

    def end(self) -> None:
        """Drop all entries, and cache none any more: the connection is gone."""
        self._is_ended = True
        self.clear()

    def _forget(self, member: _Member) -> None:
        known = self._members.pop(member, None)
        if known is not None:
            api_version, rest = known
            self._hold(self._bytes - _size(rest))
            del self._entries[api_version][rest]

    def _hold(self, size: int) -> bool:
        """Hold so many bytes from now on; False if there is no memory for them."""
        if not self._shared.take(max(0, size - UNSHARED_BYTES_MAX) - max(0, self._bytes - UNSHARED_BYTES_MAX)):
            return False
        self._bytes = size
        return True


def _size(rest: bytes) -> int:
    return _ENTRY_BYTES + _COPIES * len(rest)
