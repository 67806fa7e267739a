"""Quotas by key: connections of one address, connections of one principal, waiting requests. Pure."""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Quota(Generic[K]):
    """At most `each_max` for each key. `refused` is called once when a key is refused, and not again until a tenth of
    its limit is free.
    """

    def __init__(self, each_max: int, refused: Callable[[K], None]) -> None:
        self._each_max = each_max
        self._refused = refused
        self._taken: Counter[K] = Counter()
        self._full: set[K] = set()

    def acquire(self, key: K, *, beyond: bool = False) -> bool:
        """Count one for the key and return True; False at the limit, unless `beyond`."""
        if self._taken[key] >= self._each_max and not beyond:
            if key not in self._full:
                self._full.add(key)
                self._refused(key)
            return False
        self._taken[key] += 1
        return True

    def most(self) -> tuple[K, int] | None:
        """Return the key with the highest count, and the count."""
        return next(iter(self._taken.most_common(1)), None)

    def release(self, key: K) -> None:
        """Release one of the key."""
        self._taken[key] -= 1
        if self._taken[key] < self._each_max - self._each_max // 10:
            self._full.discard(key)
        if not self._taken[key]:
            del self._taken[key]
