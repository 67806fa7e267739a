"""The fast path: a heartbeat with the same bytes as the member's last accepted one is answered without decoding.

Each connection has its own cache. For each member that was heard from on that connection it holds the bytes of its last
accepted heartbeat (without the correlation id), the ticket that says whether the same heartbeat would be accepted
again, and the bytes of the response. Entries of an older generation are replaced by the next accepted heartbeat.

A client has one member, whose cache entries do not count towards any limit. A connection with many members, such as a
proxy's, uses memory that all connections share; without it most of its heartbeats would be decoded.
"""

from collections.abc import Callable

from muster.coordinator.service import AcceptingTicket
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.messages import HEADER_START_BYTES, KEY_AND_VERSION
from muster.events.ids import GroupId, MemberId

HEARTBEAT_BYTES_MAX = 1_024
"""Longer heartbeats are not cached, so that no client can fill the memory with them."""

UNSHARED_BYTES_MAX = 16_384
"""The bytes that each connection can cache on its own, about 20 members: connections may hold as much uncounted
(FREE_BYTES).
"""

SHARED_BYTES_MAX = 16_777_216
"""The bytes that all connections can cache beyond that, about 20,000 members."""

_ENTRY_BYTES, _COPIES = 512, 2
"""The size of an entry: this overhead, and the heartbeat's bytes twice, since both ids are stored again."""


_Member = tuple[GroupId, MemberId]
_Entry = tuple[Callable[[int], bool], bytes, _Member]
_NO_ENTRIES: dict[bytes, _Entry] = {}


class SharedBytes:
    """The memory that the caches of all connections share."""

    def __init__(self, bytes_max: int = SHARED_BYTES_MAX) -> None:
        self.left_bytes = bytes_max

    def take(self, size: int) -> bool:
        """Take this many bytes, or return them if negative; False if there are not enough left."""
        if size > self.left_bytes:
            return False
        self.left_bytes -= size
        return True


class HeartbeatCache:
    """`hits` counts the heartbeats that were answered from here."""

    def __init__(self, shared: SharedBytes) -> None:
        self.hits = 0
        self._shared = shared
        self._entries: dict[int, dict[bytes, _Entry]] = {}  # by version, then by the bytes after the correlation id
        self._members: dict[_Member, tuple[int, bytes]] = {}
        self._bytes = 0
        self._is_ended = False

    def answer(self, api_version: int, rest: bytes, now_ms: int) -> bytes | None:
        """Return the response to a known heartbeat, without its correlation id; None if the rules have to decide.

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
        """Cache an accepted heartbeat, evicting the oldest ones if necessary; return whether it is cached.

        `frame` is the request without its length.
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
        """Drop all entries, and stop caching: the connection is closed."""
        self._is_ended = True
        self.clear()

    def _forget(self, member: _Member) -> None:
        known = self._members.pop(member, None)
        if known is not None:
            api_version, rest = known
            self._hold(self._bytes - _size(rest))
            del self._entries[api_version][rest]

    def _hold(self, size: int) -> bool:
        """Set the number of bytes held; False if there is no memory for them."""
        if not self._shared.take(max(0, size - UNSHARED_BYTES_MAX) - max(0, self._bytes - UNSHARED_BYTES_MAX)):
            return False
        self._bytes = size
        return True


def _size(rest: bytes) -> int:
    return _ENTRY_BYTES + _COPIES * len(rest)
