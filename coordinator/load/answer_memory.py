"""The memory for responses that are being written, in the whole process.

It limits the bytes of all of them, and decides which response continues at the limit. It does not know what is written,
or how work is scheduled (coordinator/load/slices.py).

Responses are written concurrently, in slices, so all of them would be nearly complete before the first one is. So at
the limit only one of them continues, and others that need more memory wait until it is complete. A short response is
written without asking. No response waits for its client here: once it is complete, its bytes count for its connection.
"""

from typing import Final

HELD_BYTES_MAX: Final = 268_435_456
"""The default of `queued.max.request.bytes`, for the requests and responses of all clients."""


class AnswerMemory:
    """`bytes_max` may be exceeded by one whole response, and by one entry or chunk of each of the others.

    See kafka/codec/writing.py.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.written_bytes = 0
        self._goes_on: object | None = None

    def take(self, size: int) -> None:
        """Count bytes that were written."""
        self.written_bytes += size

    def may_grow(self, answer: object) -> bool:
        """Return whether this response may grow.

        Beyond the limit only the first one that asked may grow, until it gives back its memory.
        """
        if self.written_bytes <= self.bytes_max:
            return True
        if self._goes_on is None:
            self._goes_on = answer
        return self._goes_on is answer

    def give_back(self, answer: object, size: int) -> None:
        """Release the memory of a response that is no longer being written."""
        self.written_bytes -= size
        if self._goes_on is answer:
            self._goes_on = None


def answer_memory_of(held_bytes_max: int = HELD_BYTES_MAX) -> AnswerMemory:
    """Create the process's answer memory: a quarter of the memory for requests and responses."""
    return AnswerMemory(held_bytes_max // 4)
