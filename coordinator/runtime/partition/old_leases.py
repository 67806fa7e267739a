"""The leases of former owners: until when they may still answer from memory, by partition.

What belongs here: whether a former owner may still answer, and until when. What it must not know: what is put off until
then.

A former owner may answer for a lease after its last proof, which it sent before our fence record was in the log; unless
it stopped in good order. If this process loses the partition for a moment and takes it over again, the former owner is
this process itself, and the lease of the one before it still counts.
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
        if not self.is_ours(number, last_event):
            self._until_ms[number] = fenced_ms + lease_ms

    def is_ours(self, number: int, last_event: AnyPartitionEvent | None) -> bool:
        """Whether the partition's last owner was this process itself; by the epoch, as a name may come again."""
        return last_event is not None and last_event.owner_epoch == self._served.get(number)

    def served(self, number: int, epoch: int) -> None:
        """Note that this process serves the partition, under this epoch."""
        self._served[number] = epoch

    def has_served(self, number: int) -> bool:
        """Whether this process has served the partition before."""
        return number in self._served

    def left_ms(self, number: int, now_ms: int) -> int:
        """The time for which a former owner may still answer."""
        return max(0, self._until_ms.get(number, now_ms) - now_ms)
