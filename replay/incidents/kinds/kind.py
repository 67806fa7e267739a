"""The types of a kind of incident, the view of an episode that it searches, and the claims that it makes."""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from muster.events.state import Member
from muster.replay.incidents.episode.acts import AnyAct
from muster.replay.incidents.episode.episode import A, Episode
from muster.replay.incidents.episode.replacements import Replacement
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.rebalances.rebalance import MemberRef, Rebalance


class Kind(msgspec.Struct, frozen=True):
    """A kind of incident. `about` and `culprits` are for the page of kinds (docs/incidents.md)."""

    name: str
    about: str
    culprits: str


class IncidentClaim(msgspec.Struct, frozen=True, kw_only=True):
    """An incident that was found, with its own acts and rebalances.

    `held`: rebalances that belong to it no matter what started them. `affected`: members that suffered from it but did
    not cause it.
    """

    kind: Kind
    acts: tuple[AnyAct, ...]
    culprits: tuple[Member | MemberRef, ...]
    affected: tuple[Member, ...] = ()
    grade: Grade
    headline: str
    chain: tuple[Statement, ...] = ()
    advice: tuple[str, ...] = ()
    held: tuple[Rebalance, ...] = ()
    began_ms: int | None = None
    """When it began, if its rebalances do not show that because they may have begun earlier or later."""
    at_ms: int | None = None
    until_ms: int | None = None
    """When it happened or began, and when it ended, in wall clock ms. None: taken from its acts."""
    unassigned_partition_ms: int | None = 0
    """Partition time in which partitions were assigned to no member; None: not known."""


class EpisodeView:
    """An episode, and which of its acts are not claimed by an incident yet."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self._claimed: set[int] = set()
        self._held: set[int] = set()

    def is_free(self, act: AnyAct) -> bool:
        """Return whether no incident has claimed the act yet."""
        return act.seq not in self._claimed

    def free(self, kind: type[A]) -> Iterator[A]:
        """Return the unclaimed acts of a class, in order."""
        return (act for act in self.episode.of(kind) if act.seq not in self._claimed)  # type: ignore[attr-defined]

    def free_replacements(self) -> list[Replacement]:
        """Return the replacements without a claimed act."""
        return [each for each in self.episode.replacements if all(map(self.is_free, each.acts))]

    def returns(self) -> dict[int, Replacement]:
        """Return the unclaimed replacements by the `seq` of the departure."""
        return {each.went.seq: each for each in self.free_replacements() if each.went is not None}

    def rebalances(self) -> Iterator[Rebalance]:
        """Return the rebalances that no incident holds yet."""
        return (each for each in self.episode.rebalances if id(each) not in self._held)

    def take(self, claim: IncidentClaim) -> None:
        """Mark the acts and rebalances of the claim as taken."""
        self._claimed.update(act.seq for act in claim.acts)
        self._held.update(map(id, claim.held))


Find = Callable[[EpisodeView], Iterable[IncidentClaim]]
"""Finds the incidents of a function's kinds among the unclaimed acts."""
