"""The leader of a group: determined, or Kafka's free choice.

Kafka takes the first in hash order of random ids when the leader was removed, or does not rejoin (S12, S13, RB13).
Muster takes the longest-standing member. Both are valid. With one candidate there is no choice.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tests.conformance.wire import Fields

DEAD: Final = "Dead"


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A group as shown by DescribeGroups: `members` has instance ids by member id."""

    state: str
    members: Mapping[str, str | None]

    @classmethod
    def of(cls, described: Fields) -> "View":
        """From an entry of a v5 response."""
        members = {each["member_id"]: each["group_instance_id"] for each in described["members"]}
        return cls(state=described["group_state"], members=members)

    def member_of(self, instance: str | None) -> str | None:
        """The member id of an instance id."""
        return next((id_ for id_, each in self.members.items() if instance is not None and each == instance), None)


class Leadership:
    """The leader, while it is determined, and the last known generation."""

    def __init__(self) -> None:
        self._leader: str | None = None
        self._instance: str | None = None
        self._generation_id = 0
        self._is_decided = False

    def looked(self, view: View) -> None:
        """This is the group's current state. A leader that restarts is still the leader; one that is gone may have any
        successor.
        """
        if self._is_decided:
            return
        if view.state == DEAD:
            self._generation_id = 0  # generations start again in a group that was deleted
        if len(view.members) == 1:
            ((self._leader, self._instance),) = view.members.items()
        elif self._instance is not None:
            self._leader = view.member_of(self._instance)
        elif self._leader not in view.members:
            self._leader = None
        self._instance = view.members.get(self._leader) if self._leader is not None else None

    def answered(self, answer: Fields) -> None:
        """A join was answered. If it has a new generation, later observations do not matter for that."""
        self._is_decided |= self._is_new(answer)

    def _is_new(self, answer: Fields) -> bool:
        is_new: bool = answer["error_code"] == 0 and answer["generation_id"] > self._generation_id
        return is_new

    def is_free(self, joined: Sequence[Fields]) -> bool:
        """True if the leader of a new generation could be another; `joined` are all responses about it."""
        ids = {answer["member_id"] for answer in joined}
        free = self._leader not in ids and len(ids) > 1
        self._leader, self._instance = joined[0]["leader"], None
        self._is_decided = False
        return free

    def new_generation(self, answers: Sequence[Fields]) -> list[Fields]:
        """The responses about a generation that was not known before."""
        joined = [each for each in answers if self._is_new(each)]
        self._generation_id = max([self._generation_id, *(each["generation_id"] for each in joined)])
        return joined
