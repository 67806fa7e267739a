"""The fast path: a heartbeat whose bytes are those of the member's last accepted one is answered without decoding.

One cache belongs to one connection. It holds, for each member that was heard on that connection, the bytes of its last
accepted heartbeat (correlation id aside), the ticket that says whether the same heartbeat would be accepted again, and
the bytes of the answer. What was cached under an older generation is replaced with the next accepted heartbeat.
"""

from collections.abc import Callable
from struct import Struct

from muster.coordinator.service import HeartbeatTicket
from muster.coordinator.wire import heartbeat
from muster.coordinator.wire.messages import HEADER_START_BYTES
from muster.events.ids import GroupId, MemberId

MEMBERS_MAX = 64
"""The limit of members in one connection's cache; the oldest entry makes room. A client has one member."""

HEARTBEAT_BYTES_MAX = 1_024
"""Longer heartbeats are not cached, so that no client fills the memory with them."""

CACHED_BYTES_MAX = 16_384
"""All of a connection's: it may hold as much uncounted (FREE_BYTES)."""

_KEY_VERSION = Struct(">hh")

_Member = tuple[GroupId, MemberId]
_Entry = tuple[Callable[[int], bool], bytes, _Member]
_NO_ENTRIES: dict[bytes, _Entry] = {}


class HeartbeatCache:
    """`hits` counts the heartbeats that were answered from here."""

    def __init__(self) -> None:
        self.hits = 0
        self._entries: dict[int, dict[bytes, _Entry]] = {}  # by version, then by what follows the correlation id
        self._members: dict[_Member, tuple[int, bytes]] = {}
        self._bytes = 0

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

    def keep(self, frame: bytes, group_id: GroupId, member_id: MemberId, ticket: HeartbeatTicket) -> None:
        """Cache an accepted heartbeat; `frame` is the request without its length."""
        member = (group_id, member_id)
        self._forget(member)
        if len(frame) > HEARTBEAT_BYTES_MAX:
            return
        while len(self._members) >= MEMBERS_MAX or self._bytes + len(frame) > CACHED_BYTES_MAX:
            self._forget(next(iter(self._members)))
        _, api_version = _KEY_VERSION.unpack_from(frame)
        rest = frame[HEADER_START_BYTES:]
        self._members[member] = (api_version, rest)
        self._bytes += len(rest)
        self._entries.setdefault(api_version, {})[rest] = (ticket.accept, heartbeat.accepted(api_version), member)

    def clear(self) -> None:
        """Drop all entries."""
        self._entries.clear()
        self._members.clear()
        self._bytes = 0

    def _forget(self, member: _Member) -> None:
        known = self._members.pop(member, None)
        if known is not None:
            api_version, rest = known
            self._bytes -= len(rest)
            del self._entries[api_version][rest]
