"""Reads a Produce (key 0) as it passes: whether it has a response, and whether it names one of Muster's own topics.

v3 adds the transactional id, before the acks; v9 is flexible; from v13 on, topics are named by id.

    transactional id, acks, timeout, topics:    name or id, partitions:    index, records

The request is streamed and never buffered whole: the scanner reads topics as they pass and skips records by their
length. It reads each byte before the broker gets it. If a topic of Muster's own is the only topic, its partitions are
refused with a response, since nothing has been relayed by then. If there are other topics, the connection is closed
before the end of the request is sent: a broker does not act on an incomplete request.

Knows nothing of sockets, nor of who owns the topics.
"""

import struct
from collections.abc import Callable
from struct import Struct
from typing import Final

from muster.coordinator.sidecar.messages.request_plan import RequestPlan, Rewrite
from muster.coordinator.sidecar.messages.request_start import (
    body_at,
    malformed,
    read_string,
    read_varint,
    tagged_field_end,
)
from muster.coordinator.sidecar.messages.reserved_names import ReservedNames
from muster.coordinator.wire.api import Fault, ProtocolError

Step = Callable[[bytes, int], int]

PRODUCE = 0

ENTRIES_MAX: Final = 100_000
"""Limit of topics, partitions and tagged fields in one request; no broker leads as many partitions."""
REFUSED_PRODUCE_BYTES_MAX: Final = 2_097_152
"""Size limit of a request that is refused with a response and so buffered whole: twice as much as producers send."""

_INT16, _INT32 = Struct(">h"), Struct(">i")
_FLEXIBLE_FROM = 9
_TRANSACTIONAL_FROM = 3
_IDS_FROM = 13
_ANSWERED_FROM = 3
_LENGTH_BYTES = _INT32.size
_TIMEOUT_BYTES = _INT32.size
_INDEX_BYTES = _INT32.size
_ID_BYTES = 16
_NAME_BYTES_MAX = 249  # no topic has a longer name
NOT_FOR_CLIENTS: Final = "it belongs to Muster's own event log, to which only Muster writes"


def plan_produce(frame: bytes, api_version: int, rewrite: Rewrite | None, reserved: ReservedNames) -> RequestPlan:
    """Plan a Produce by its first bytes after the length.

    Raises ProtocolError, and IndexError or struct.error if more bytes are needed.
    """
    flexible = api_version >= _FLEXIBLE_FROM
    at = body_at(frame, flexible=flexible)
    transactional_id = b""
    if api_version >= _TRANSACTIONAL_FROM:
        transactional_id, at = read_string(frame, at, flexible=flexible)
    acks: int = _INT16.unpack_from(frame, at)[0]
    is_answered = acks != 0  # Produce with acks=0 has no response (P9)
    if not reserved.topics:
        return RequestPlan(rewrite=rewrite, is_answered=is_answered)
    if transactional_id and reserved.is_transactional_id(transactional_id):
        raise ProtocolError(
            Fault.REFUSED_PRODUCE,
            f"a Produce under the transactional id {transactional_id.decode()}: {NOT_FOR_CLIENTS}",
        )
    topics, at = _count(frame, at + _INT16.size + _TIMEOUT_BYTES, flexible=flexible)
    if topics:
        key, _ = _topic_key(frame, at, api_version)
        if topics == 1 and is_answered and api_version >= _ANSWERED_FROM and reserved.is_topic(key):
            return RequestPlan(is_handled=True, handled_bytes_max=REFUSED_PRODUCE_BYTES_MAX)
    walk = ProduceScanner(api_version, topics, reserved, skip=_LENGTH_BYTES + at)
    return RequestPlan(rewrite=rewrite, is_answered=is_answered, check_stream=walk.feed)


class ProduceScanner:
    """Reads the topics of a Produce as it passes; they begin `skip` bytes after its beginning.

    It is always in one of its steps, which waits for more bytes or first has bytes to skip.
    """

    def __init__(self, api_version: int, topics: int, reserved: ReservedNames, *, skip: int) -> None:
        self._api_version = api_version
        self._flexible = api_version >= _FLEXIBLE_FROM
        self._reserved = reserved
        self._skip = skip
        self._left = b""  # the beginning of an incomplete item
        self._entries = 0
        self._topics = topics  # still to come, like the two below
        self._partitions = 0
        self._tags = 0
        self._step: Step = self._topic
        self._behind_tags: Step = self._topic
        self._expect(topics)

    def feed(self, data: bytes) -> None:
        """Read the next bytes of the request. Raises ProtocolError; the broker must not get these bytes then."""
        if self._skip >= len(data):  # records, almost always
            self._skip -= len(data)
            return
        if self._left:
            data, self._left = self._left + data, b""
        at = self._skip
        while at < len(data):
            try:
                at = self._step(data, at)
            except (IndexError, struct.error):
                self._left = data[at:]
                at = len(data)
        self._skip = at - len(data)

    # ---- steps: each reads an item, sets the next step, and returns its offset -----------------------

    def _topic(self, data: bytes, at: int) -> int:
        if not self._topics:
            return len(data)  # no topic names after this
        key, at = _topic_key(data, at, self._api_version)
        if self._reserved.is_topic(key):
            name = self._reserved.name_of(key)
            raise ProtocolError(
                Fault.REFUSED_PRODUCE, f"a Produce, not answered or not alone, for {name}: {NOT_FOR_CLIENTS}"
            )
        self._topics -= 1
        self._step = self._partition_count
        return at

    def _partition_count(self, data: bytes, at: int) -> int:
        self._partitions, at = _count(data, at, flexible=self._flexible)
        self._expect(self._partitions)
        self._step = self._partition
        return at

    def _partition(self, data: bytes, at: int) -> int:
        """Read the partitions that have arrived; the last may be incomplete."""
        begins = at
        while self._partitions and at < len(data):
            try:
                ends = self._records_end(data, at + _INDEX_BYTES)
            except (IndexError, struct.error):
                if at == begins:
                    raise
                return at
            self._partitions -= 1
            at = ends
            if not self._flexible:
                continue
            if at >= len(data) or data[at]:
                self._step, self._behind_tags = self._tag_count, self._partition
                return at
            at += 1  # no tagged fields, almost always
        if not self._partitions:
            self._step, self._behind_tags = (self._tag_count if self._flexible else self._topic), self._topic
        return at

    def _records_end(self, data: bytes, at: int) -> int:
        if self._flexible:
            length, at = read_varint(data, at)
            return at + max(0, length - 1)
        return at + _INT32.size + max(0, int(_INT32.unpack_from(data, at)[0]))

    def _tag_count(self, data: bytes, at: int) -> int:
        self._tags, at = read_varint(data, at)
        self._expect(self._tags)
        self._step = self._tag if self._tags else self._behind_tags
        return at

    def _tag(self, data: bytes, at: int) -> int:
        at = tagged_field_end(data, at)
        self._tags -= 1
        if not self._tags:
            self._step = self._behind_tags
        return at

    def _expect(self, entries: int) -> None:
        self._entries += entries
        if self._entries > ENTRIES_MAX:
            raise malformed(f"a Produce with more than {ENTRIES_MAX} topics, partitions and tagged fields")


def _count(data: bytes, at: int, *, flexible: bool) -> tuple[int, int]:
    """Read the length of a non-null array; return it with the offset of the first item."""
    if flexible:
        length, at = read_varint(data, at)
        length -= 1
    else:
        length, at = int(_INT32.unpack_from(data, at)[0]), at + _INT32.size
    if length < 0:
        raise malformed("a Produce without an array that has to be there")
    return length, at


def _topic_key(data: bytes, at: int, api_version: int) -> tuple[bytes, int]:
    """Read a topic's name or id (empty if no topic can have it); return it with the offset after it."""
    if api_version >= _IDS_FROM:
        length = _ID_BYTES
    elif api_version >= _FLEXIBLE_FROM:
        length, at = read_varint(data, at)
        length -= 1
    else:
        length, at = int(_INT16.unpack_from(data, at)[0]), at + _INT16.size
    if length < 0:
        raise malformed("a Produce for a topic without a name")
    ends = at + length
    if length > _NAME_BYTES_MAX:
        return b"", ends
    if ends > len(data):
        raise IndexError(f"a name of {length} bytes")
    return data[at:ends], ends
