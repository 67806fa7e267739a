"""Owners that were here before and have not said goodbye: they have crashed, or were believed to be gone and are not.

What belongs here: whether a line is due. A deposed owner finds out by its next append, so that it is the successor who
has to tell of it.
"""

import structlog

from muster.events.events import AnyPartitionEvent, CoordinatorStopped

log = structlog.get_logger(__name__)


class FormerOwners:
    """Of all partitions of a process: each is told of once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, last_word: AnyPartitionEvent | None, *, by: str, location: str) -> None:
        """`last_word`: what stood last in the partition before it was claimed; `by`: who has claimed it."""
        if last_word is None or isinstance(last_word, CoordinatorStopped):
            return
        if last_word.owner not in {by, *self._told}:
            self._told.add(last_word.owner)
            log.warning(
                "the event log was taken over from one who had not said goodbye: if it still runs, it is deposed",
                log=location,
                owner=last_word.owner,
            )
