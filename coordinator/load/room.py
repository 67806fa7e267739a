"""How much room there is for answers that are being written, in all of the process.

What belongs here: how many bytes they have together, and who goes on when that is too much. What it must not know: what
is written, and who runs whom (coordinator/load/slices.py).

Answers grow side by side, in slices: each would be nearly all there before the first is. So at the bound one of them
goes on, and the others that are to grow wait until it has ended; with an entry that is long, before it is written. A
short answer never asks. Nobody waits for a client here: what was written is the connection's, and counted with what it
holds.
"""

from typing import Final

HELD_BYTES_MAX: Final = 268_435_456
"""What requests and answers of all clients may have, unless it is set: `queued.max.request.bytes`."""


class Room:
    """`bytes_max` may be exceeded by one answer, one entry of another, and a chunk of each (wire/writing.py)."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.written_bytes = 0
        self._goes_on: object | None = None

    def take(self, size: int) -> None:
        """So many more bytes were written."""
        self.written_bytes += size

    def may_grow(self, answer: object) -> bool:
        """Whether this answer may be longer. The first that asks beyond the bound is the one that goes on from then on,
        until it gives back.
        """
        if self.written_bytes <= self.bytes_max:
            return True
        if self._goes_on is None:
            self._goes_on = answer
        return self._goes_on is answer

    def give_back(self, answer: object, size: int) -> None:
        """This answer is no longer being written, and had so many bytes."""
        self.written_bytes -= size
        if self._goes_on is answer:
            self._goes_on = None


def room_of(held_bytes_max: int = HELD_BYTES_MAX) -> Room:
    """The room of a process: a quarter of what requests and answers may have."""
    return Room(held_bytes_max // 4)
