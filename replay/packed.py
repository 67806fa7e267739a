"""Values of which many are kept until they are needed, each in little room."""

import pickle
from typing import Final, Generic, TypeVar, cast

import cramjam

T = TypeVar("T")

_LEVEL: Final = 1


class Packed(Generic[T]):
    """A value, packed. An incident of a group that never rests has thousands of rebalances, and a fleet 10,000 groups
    with their members. What is taken out is a copy: whoever changes it packs it again.
    """

    __slots__ = ("_packed",)

    def __init__(self, value: T) -> None:
        self._packed = bytes(cramjam.zstd.compress(pickle.dumps(value), level=_LEVEL))

    @property
    def value(self) -> T:
        """The value whole."""
        return cast("T", pickle.loads(bytes(cramjam.zstd.decompress(self._packed))))  # noqa: S301 -- our own
