"""Teams, and the cost of their groups. A team is the part of group ids that a pattern matches. Pure."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

DEFAULT_PATTERN: Final = r"^([^._-]+)[._-]"
"""The start of a group's id, up to the first of these separators."""

NO_TEAM: Final = "(no team)"


class GroupCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a group."""

    group_id: str
    rebalances: int
    rebalancing_ms: int
    partition_ms: int


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """A team: the total cost of its groups, and the most expensive of them."""

    name: str
    groups: int
    rebalances: int
    rebalancing_ms: int
    partition_ms: int
    worst_group: str


def team_of(group_id: str, pattern: re.Pattern[str]) -> str:
    """The team of a group: the pattern's first capture group if it has one, else the whole match."""
    found = pattern.search(group_id)
    if found is None:
        return NO_TEAM
    return (found[1] if pattern.groups else found[0]) or NO_TEAM


def teams_of(groups: Iterable[GroupCost], pattern: re.Pattern[str]) -> list[Team]:
    """The teams, most expensive first."""
    by_team: dict[str, list[GroupCost]] = {}
    for group in groups:
        by_team.setdefault(team_of(group.group_id, pattern), []).append(group)
    teams = [
        Team(
            name=name,
            groups=len(of_team),
            rebalances=sum(each.rebalances for each in of_team),
            rebalancing_ms=sum(each.rebalancing_ms for each in of_team),
            partition_ms=sum(each.partition_ms for each in of_team),
            worst_group=max(
                of_team, key=lambda each: (each.partition_ms, each.rebalancing_ms, each.rebalances)
            ).group_id,
        )
        for name, of_team in by_team.items()
    ]
    return sorted(teams, key=lambda team: (-team.partition_ms, -team.rebalancing_ms, -team.rebalances, team.name))
