"""Kinds of incidents: a name, what is said of it in the docs, and how one is found in an episode."""

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
    """An incident that was found: the acts and the rebalances that are its own.

    `held`: rebalances that it is the primary incident of, whatever started them. `affected`: members that it befell and
    that are not to blame for it.
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
    """When it began, where its rebalances do not tell: they may be earlier ones, or later ones."""
    at_ms: int | None = None
    until_ms: int | None = None
    """When it was, or began, and when it was over; wall clock ms. None: as its acts tell."""
    unassigned_partition_ms: int | None = 0
    """Partitions times the time in which nobody was assigned their topic; None: not known."""


class EpisodeView:
    """An episode, and which of its acts no incident has claimed yet."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self._claimed: set[int] = set()
        self._held: set[int] = set()

    def is_free(self, act: AnyAct) -> bool:
        """Whether no incident has it yet."""
        return act.seq not in self._claimed

    def free(self, kind: type[A]) -> Iterator[A]:
        """The acts of a class that no incident has yet, in order."""
        return (act for act in self.episode.of(kind) if act.seq not in self._claimed)  # type: ignore[attr-defined]

    def free_replacements(self) -> list[Replacement]:
        """The replacements of which no act is claimed."""
        return [each for each in self.episode.replacements if all(map(self.is_free, each.acts))]

    def returns(self) -> dict[int, Replacement]:
        """The free replacements by the `seq` of the departure."""
        return {each.went.seq: each for each in self.free_replacements() if each.went is not None}

    def rebalances(self) -> Iterator[Rebalance]:
        """The rebalances that no incident holds yet."""
        return (each for each in self.episode.rebalances if id(each) not in self._held)

    def take(self, claim: IncidentClaim) -> None:
        """Note that the acts and rebalances of the claim belong to an incident."""
        self._claimed.update(act.seq for act in claim.acts)
        self._held.update(map(id, claim.held))


Find = Callable[[EpisodeView], Iterable[IncidentClaim]]
"""Finds what is free in the view and of its kinds."""
