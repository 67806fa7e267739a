"""The state of a run on Kafka after each request: the example that a run through a sidecar waits for.

It compares, and limits how long it waits.

A sidecar asks the broker for its consent before it answers, so that a question that was asked later tells nothing of
an earlier one. There the end of waiting is that the group is as Kafka has it, and that whoever was answered there is
answered. If that does not come true, the transcripts tell.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tests.conformance.wire import Fields

LIMIT_S: Final = 1.2
"""Shorter than a rebalance's timers: what comes by a timeout where Kafka answers at once is not waited for."""


class Astray(Exception):
    """A run has come to something else than its example. The machine may have stalled: it is repeated."""


class Seen(msgspec.Struct, frozen=True):
    """After a request: the group's state and members, ids aside, and who of those who had asked was answered."""

    group: tuple[str, tuple[tuple[str, bytes, bytes], ...]]
    answered: tuple[bool, ...]

    def is_followed_by(self, other: "Seen") -> bool:
        """Whether the other is as far as this one; a parked sync of a leaver is answered by Muster alone (QK2)."""
        if self.group != other.group or len(self.answered) != len(other.answered):
            return False
        return all(was <= is_ for was, is_ in zip(self.answered, other.answered, strict=True))


def seen(described: Fields, answered: Sequence[bool]) -> Seen:
    """From an entry of an answer of DescribeGroups."""
    members = sorted(
        (each["group_instance_id"] or "", each["member_metadata"], each["member_assignment"])
        for each in described["members"]
    )
    return Seen((described["group_state"], tuple(members)), tuple(answered))
