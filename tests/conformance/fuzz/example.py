"""The state of a run on Kafka after each request: the example that a run through a sidecar waits for.

It compares, and limits the wait.

A sidecar asks the broker before it responds, so the response to a later request says nothing about an earlier one.
There the wait ends when the group is in Kafka's state, and every request answered there is answered. If that does not
happen, the transcripts show it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tests.conformance.wire import Fields

LIMIT_S: Final = 1.2
"""Shorter than a rebalance's timers: a response that needs a timeout, but is immediate on Kafka, is not awaited."""


class Astray(Exception):
    """A run has reached another state than its example. The machine may have stalled: the run is repeated."""


class Seen(msgspec.Struct, frozen=True):
    """After a request: the group's state and members, without ids, and which members' requests were answered."""

    group: tuple[str, tuple[tuple[str, bytes, bytes], ...]]
    answered: tuple[bool, ...]

    def is_followed_by(self, other: "Seen") -> bool:
        """True if the other is as far as this one; only Muster answers a leaver's parked sync (QK2)."""
        if self.group != other.group or len(self.answered) != len(other.answered):
            return False
        return all(was <= is_ for was, is_ in zip(self.answered, other.answered, strict=True))


def seen(described: Fields, answered: Sequence[bool]) -> Seen:
    """From an entry of a DescribeGroups response."""
    members = sorted(
        (each["group_instance_id"] or "", each["member_metadata"], each["member_assignment"])
        for each in described["members"]
    )
    return Seen((described["group_state"], tuple(members)), tuple(answered))
