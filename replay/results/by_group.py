"""The records of a log, given to their groups many at once: that costs less than one after another."""

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final, Generic, Protocol, TypeVar

from muster.events.ids import GroupId
from muster.events.keys import EntityKind, decode_key
from muster.events.records import StoredRecord, UndecodableKey

KEYS_KNOWN_MAX: Final = 200_000
KEYS_KNOWN_BYTES: Final = 20_000_000


class TakesRecords(Protocol):
    """A fold over one group. `waiting`: its next records, which it has not taken in yet."""

    waiting: list[StoredRecord]

    def take_waiting(self) -> None:
        """Take in the next records."""


G = TypeVar("G", bound=TakesRecords)


class ByGroup(Generic[G]):
    """Takes in the records of a log, partition by partition. `wanted`: a pattern of group ids, as for files.

    `made`: makes what takes in the records of a group, of its id and its partition. `note`: takes in what concerns a
    whole partition, or is of no known group; all records before it have been taken in then.
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
        """The next records, which have all been taken in when this returns."""
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
        """Give up the groups, in the order in which they were met."""
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
        """The group of a key that is met for the first time; None for what is of no group that is wanted."""
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
