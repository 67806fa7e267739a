"""A dictionary with many versions: copies are free, and a change costs only what it changes.

Groups and their soft state are made of this collection. A decision works on copies, and the runtime keeps the previous
version until the decision is durable; in a group of thousands of members neither may copy all of them.

How it works: versions share one dictionary that is no longer written to, and each version keeps its few changes since
then. When the changes outnumber the square root of its size, they are merged into a dictionary of the version's own,
and further changes are written there directly, until the version is copied again. So one change usually copies about a
square root of the entries; many changes of one version cost one entry each. A table of up to `SMALL` entries is a plain
dictionary, copied before its first write.

It keeps insertion order like a dictionary. That rules out a hash trie (`immutables.Map`): its order differs between
processes, and the order of a decision's events would too.

Iteration (`items`, `values`, `keys`, `iter`) runs over the dictionary as it is then, at a dictionary's speed. The
drawback: the first iteration after a change copies all entries.
"""

from collections.abc import (
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    MutableSet,
    Set,
    ValuesView,
)
from enum import Enum
from math import isqrt
from typing import Any, Final, Self, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

SMALL = 32
"""Copying this many entries takes no longer than recording one change."""


class _Mark(Enum):
    GONE = 0
    """Marks a deleted key of the shared dictionary."""
    NOT_NOTED = 1


_GONE: Final = _Mark.GONE
_NOT_NOTED: Final = _Mark.NOT_NOTED
_OWNS_NOTHING, _OWNS_CHANGES, _OWNS_ALL = 0, 1, 2
_EMPTY: dict[Any, Any] = {}


class Table(MutableMapping[K, V]):
    """A mapping with cheap copies, built from a mapping or pairs; equal to any mapping with the same entries."""

    __slots__ = ("_all", "_changes", "_grown", "_owns")

    def __init__(self, entries: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._all: dict[K, V] = dict(entries) if entries else _EMPTY
        self._changes: dict[K, V | _Mark] = _EMPTY
        self._grown = 0  # how many more entries there are than in `_all`
        self._owns = _OWNS_ALL if entries else _OWNS_NOTHING

    def copy(self) -> Self:
        """Return an independent copy."""
        self._owns = _OWNS_NOTHING
        twin = object.__new__(type(self))
        twin._all, twin._changes, twin._grown, twin._owns = self._all, self._changes, self._grown, _OWNS_NOTHING
        return twin

    # ---- one entry ------------------------------------------------------------------------------

    def __getitem__(self, key: K) -> V:
        noted = self._changes.get(key, _NOT_NOTED) if self._changes else _NOT_NOTED
        if noted is _NOT_NOTED:
            return self._all[key]
        if noted is _GONE:
            raise KeyError(key)
        return noted

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """Return the value of a key, or the default, as a dictionary does."""
        noted = self._changes.get(key, _NOT_NOTED) if self._changes else _NOT_NOTED
        if noted is _NOT_NOTED:
            return self._all.get(key, default)
        return default if noted is _GONE else noted

    def __contains__(self, key: object) -> bool:
        if self._changes and key in self._changes:
            return self._changes[key] is not _GONE
        return key in self._all

    def __setitem__(self, key: K, value: V) -> None:
        if self._owns != _OWNS_ALL:
            if not self._changes and len(self._all) <= SMALL:  # the usual case
                self._all, self._grown, self._owns = self._all.copy(), 0, _OWNS_ALL
                self._all[key] = value
                return
            if not self._makes_room() and self._changes.get(key) is not _GONE:
                if key not in self._changes and key not in self._all:
                    self._grown += 1
                self._changes[key] = value
                return
            self._write_all()  # also for a key that was deleted and comes back: it goes to the end, as in a dictionary
        self._all[key] = value

    def __delitem__(self, key: K) -> None:
        if self._owns != _OWNS_ALL:
            if key not in self:
                raise KeyError(key)
            if not self._makes_room():
                if key in self._all:
                    self._changes[key] = _GONE
                else:
                    del self._changes[key]
                self._grown -= 1
                return
            self._write_all()
        del self._all[key]

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V | D, /) -> V | D: ...
    def pop(self, key: K, default: Any = _NOT_NOTED, /) -> Any:
        """Remove a key and return its value, as a dictionary does."""
        value = self.get(key, _NOT_NOTED)
        if value is _NOT_NOTED:
            if default is _NOT_NOTED:
                raise KeyError(key)
            return default
        del self[key]
        return value

    def clear(self) -> None:
        self._all, self._changes, self._grown, self._owns = _EMPTY, _EMPTY, 0, _OWNS_NOTHING

    def _makes_room(self) -> bool:
        """Prepare to note one more change; return True if there are so many that they must be merged instead."""
        size = len(self._all)
        if size <= SMALL or len(self._changes) >= isqrt(size):
            return True
        if self._owns == _OWNS_NOTHING:
            self._changes = self._changes.copy()
            self._owns = _OWNS_CHANGES
        return False

    def _write_all(self) -> None:
        """Merge the changes into a dictionary of our own."""
        written = self._all.copy()
        for key, value in self._changes.items():
            if value is _GONE:
                del written[key]
            else:
                written[key] = value  # type: ignore[assignment]  # the other mark is never noted
        self._all, self._changes, self._grown, self._owns = written, _EMPTY, 0, _OWNS_ALL

    # ---- all entries ----------------------------------------------------------------------------

    def _walked(self) -> dict[K, V]:
        if self._changes:
            self._write_all()
        return self._all

    def __len__(self) -> int:
        return len(self._all) + self._grown

    def __iter__(self) -> Iterator[K]:
        return iter(self._walked())

    def keys(self) -> KeysView[K]:
        return self._walked().keys()

    def values(self) -> ValuesView[V]:
        return self._walked().values()

    def items(self) -> ItemsView[K, V]:
        return self._walked().items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return self._walked() == other._walked()
        return self._walked() == other if isinstance(other, Mapping) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as for every mutable collection

    def __repr__(self) -> str:
        return repr(self._walked())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._walked(),)


class TableSet(MutableSet[K]):
    """A set with cheap copies, like a Table; keeps insertion order."""

    __slots__ = ("_table",)

    def __init__(self, members: Iterable[K] = ()) -> None:
        self._table: Table[K, None] = Table(dict.fromkeys(members))

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = object.__new__(type(self))
        twin._table = self._table.copy()
        return twin

    def __contains__(self, member: object) -> bool:
        return member in self._table

    def __iter__(self) -> Iterator[K]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def add(self, member: K) -> None:
        self._table[member] = None

    def discard(self, member: K) -> None:
        self._table.pop(member, None)

    def clear(self) -> None:
        self._table.clear()

    def __eq__(self, other: object) -> bool:
        return self._table.keys() == other if isinstance(other, Set) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as for every mutable collection

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self._table))}}}"
