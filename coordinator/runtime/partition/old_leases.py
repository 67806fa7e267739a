"""The leases of owners before this process: until when they may still answer from memory, by partition.

What belongs here: whether somebody may still answer, and until when. What it must not know: what is put off until then.

Whoever owned a partition before may answer for a lease after its last proof, which it sent before our fence record was
in the log; unless it stopped in good order. What is left of that counts on when this process loses the partition for a
moment: it is itself the owner before then, and has not outlived the one before it.
"""

from muster.events.events import AnyPartitionEvent, CoordinatorStopped


class OldLeases:
    """See the module. Times are by the clock of leases."""

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}
        self._served: dict[int, int] = {}

    def taken_over(self, number: int, last_event: AnyPartitionEvent | None, *, fenced_ms: int, lease_ms: int) -> None:
        """Note a takeover. `last_event`: the last before the claim; `fenced_ms`: when the fence record was there."""
        if last_event is None or isinstance(last_event, CoordinatorStopped):
            return
        if last_event.owner_epoch != self._served.get(number):
            self._until_ms[number] = fenced_ms + lease_ms

    def served(self, number: int, epoch: int) -> None:
        """Note that this process serves the partition, under this epoch."""
        self._served[number] = epoch

    def left_ms(self, number: int, now_ms: int) -> int:
        """The time for which an owner before may still answer."""
        return max(0, self._until_ms.get(number, now_ms) - now_ms)
