"""Compressed values, for keeping many of them in memory until they are needed."""

import pickle
from typing import Final, Generic, TypeVar, cast

import cramjam

T = TypeVar("T")

_LEVEL: Final = 1


class Packed(Generic[T]):
    """A pickled and compressed value. An incident of a group that keeps rebalancing has thousands of rebalances, and a
    fleet has 10,000 groups with their members.

    Reading it returns a copy: to change the value, pack it again.
    """

    __slots__ = ("_packed",)

    def __init__(self, value: T) -> None:
        self._packed = bytes(cramjam.zstd.compress(pickle.dumps(value), level=_LEVEL))

    @property
    def value(self) -> T:
        """The unpacked value."""
        return cast("T", pickle.loads(bytes(cramjam.zstd.decompress(self._packed))))  # noqa: S301 -- our own
