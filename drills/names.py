"""The names that a drill gives its groups and topics: a fixed prefix and a random part.

A drill only creates and deletes things that have its run's name. Pure, except for the random part.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Final

import msgspec

from muster.drills.plan import NotOurs

PREFIX: Final = "muster-drill-"
_RUN = re.compile(r"[0-9a-f]{10}")


def new_run() -> str:
    """Make the random part of a drill's names."""
    return secrets.token_hex(5)


class Names(msgspec.Struct, frozen=True):
    """The names of one run. `run`: its random part."""

    run: str

    def __post_init__(self) -> None:
        assert _RUN.fullmatch(self.run), self.run

    @property
    def prefix(self) -> str:
        return f"{PREFIX}{self.run}"

    @property
    def topic(self) -> str:
        """The topic of a local drill's event log, in the cluster."""
        return self.prefix

    @property
    def subscribed_topic(self) -> str:
        """The topic that members subscribe to; sidecars need it, because their cluster has to have the topic."""
        return f"{self.topic}_subscribed"

    def is_topic(self, topic: str) -> bool:
        """Return whether a topic belongs to this drill: the event log, its other topics, or the subscribed one."""
        return topic == self.topic or topic.startswith(f"{self.topic}_")

    def group(self, number: int, *, static: bool) -> str:
        """Return the name of a group. `static`: all its members are static."""
        return f"{self.prefix}-{'static' if static else 'dynamic'}-{number}"

    def is_ours(self, group_id: str) -> bool:
        """Return whether this run created the group."""
        return group_id.startswith(f"{self.prefix}-")

    def check_ours(self, group_id: str) -> None:
        """Raise NotOurs for a group that this run did not create."""
        if not self.is_ours(group_id):
            raise NotOurs(
                f"group {group_id} was not made by this drill, whose groups begin with {self.prefix}: nothing is done"
                " to it"
            )

    def check_new(self, there: Iterable[str]) -> None:
        """Raise NotOurs if groups with this run's names already exist."""
        found = sorted(filter(self.is_ours, there))
        if found:
            raise NotOurs(
                f"group {found[0]} is there already, and this drill has not made it: start the drill again, and it"
                " takes other names"
            )


def member_name(group_id: str, member: str, run: str) -> str:
    """Return a short name of a member for the report: its group's short name, and its own."""
    return f"{short(group_id, run)} {member}"


def short(group_id: str, run: str) -> str:
    """Return a group's name without the prefix of the run."""
    return group_id.removeprefix(f"{PREFIX}{run}-")
