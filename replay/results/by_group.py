"""Distributes the records of a log to their groups in batches, which is faster than one by one."""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final, Generic, Protocol, TypeVar

from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key
from muster.events.records import StoredRecord, UndecodableKey

KEYS_KNOWN_MAX: Final = 200_000
KEYS_KNOWN_BYTES: Final = 20_000_000


class TakesRecords(Protocol):
    """A fold over one group. `waiting`: the next records, which have not been processed yet."""

    waiting: list[StoredRecord]

    def take_waiting(self) -> None:
        """Process the waiting records."""


G = TypeVar("G", bound=TakesRecords)


class ByGroup(Generic[G]):
    """Distributes the records of a log, partition by partition. `wanted`: a glob pattern for group ids.

    `made`: creates the fold for a group, given its id and partition. `note`: takes records that concern a whole
    partition, or whose group is unknown; all records before it have been processed by then.
    """

    def __init__(
        self, wanted: str | None, made: Callable[[GroupId, int], G], note: Callable[[StoredRecord], None]
    ) -> None:
        self.groups: dict[GroupId, G] = {}
        self._wanted = wanted
        self._made = made
        self._note = note
        self._by_key: dict[bytes, G | None] = {}
        self._by_key_bytes = 0
        self._waiting: list[G] = []

    def take(self, records: Iterable[StoredRecord]) -> None:
        """Process the next records; none are waiting when this returns."""
        by_key = self._by_key
        for record in records:
            try:
                group = by_key[record.key]
            except KeyError:
                group = self._of_new_key(record)
            if group is not None:
                if not group.waiting:
                    self._waiting.append(group)
                group.waiting.append(record)
        self._take_waiting()

    def end(self) -> Iterator[G]:
        """Hand over the groups, in the order in which they were first seen, and drop them."""
        groups = list(self.groups.values())
        self.groups.clear()
        self._by_key.clear()
        self._by_key_bytes = 0
        groups.reverse()
        while groups:
            yield groups.pop()

    def _take_waiting(self) -> None:
        for group in self._waiting:
            group.take_waiting()
        self._waiting.clear()

    def _of_new_key(self, record: StoredRecord) -> G | None:
        """Return the group of a key seen for the first time; None if the record has no group or the group is not
        wanted.
        """
        try:
            key = decode_key(record.key)
        except UndecodableKey:
            key = None
        if key is None or key.kind is EntityKind.PARTITION:
            self._take_waiting()
            self._note(record)
            return None
        if len(self._by_key) >= KEYS_KNOWN_MAX or self._by_key_bytes >= KEYS_KNOWN_BYTES:
            self._by_key.clear()
            self._by_key_bytes = 0
        self._by_key_bytes += len(record.key)
        group_id = GroupId(key.group_id)
        group = None
        if self._wanted is None or fnmatchcase(group_id, self._wanted):
            group = self.groups.get(group_id)
            if group is None:
                group = self.groups[group_id] = self._made(group_id, record.partition)
        self._by_key[record.key] = group
        return group
