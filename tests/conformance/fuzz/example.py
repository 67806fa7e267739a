"""What a run on Kafka has come to after each request: the example that a run through a sidecar waits for.

What belongs here: what is compared, and for how long it is waited for. What it must not know: how it is looked at.

A sidecar asks the broker for its consent before it answers, so that a question that was asked later tells nothing of
an earlier one. There the end of waiting is that the group is as Kafka has it, and that whoever was answered there is
answered. If that does not come true, the transcripts tell.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from tests.conformance.wire import Fields

LIMIT_S: Final = 10.0


class Seen(msgspec.Struct, frozen=True):
    """After a request: the group's state and members, ids aside, and who of those who had asked was answered."""

    group: tuple[str, tuple[tuple[str, bytes, bytes], ...]]
    answered: tuple[bool, ...]

    def is_followed_by(self, other: "Seen") -> bool:
        """Whether the other is as far as this one; a parked sync of a leaver is answered by Muster alone (QK2)."""
        pairs = zip(self.answered, other.answered, strict=True)
        return self.group == other.group and all(was <= is_ for was, is_ in pairs)


def seen(described: Fields, answered: Sequence[bool]) -> Seen:
    """From an entry of an answer of DescribeGroups."""
    members = sorted(
        (each["group_instance_id"] or "", each["member_metadata"], each["member_assignment"])
        for each in described["members"]
    )
    return Seen((described["group_state"], tuple(members)), tuple(answered))


class Example:
    """A run on Kafka, request by request. Who has lost it once does not follow it any more."""

    def __init__(self, run: Sequence[Seen]) -> None:
        self._left = list(reversed(run))
        self._is_lost = False

    def next(self) -> Seen | None:
        """What the run that follows has to come to after its next request; None: that is not known."""
        return None if self._is_lost or not self._left else self._left.pop()

    def lost(self) -> None:
        """The run has come to something else."""
        self._is_lost = True
