"""The groups of a fleet, by name: teams, their groups, and the partitions of the log that they live in."""

from random import Random
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.replay.fleet.simulation.calendar import SimulatedDays

TEAMS: Final = (
    "checkout", "payments", "catalog", "search", "billing", "shipping", "fraud", "identity", "pricing", "returns",
    "ads", "loyalty", "stock", "support", "mail", "ledger", "maps", "media", "reports", "risk",
)  # fmt: skip
WORK: Final = ("orders", "events", "invoices", "audit", "enrich", "index", "notify", "export", "dedupe", "archive")
GROUPS_A_TEAM: Final = 25


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet to simulate. The same values give the same events, whatever the machine."""

    groups: int
    seed: int
    partitions: int
    span: SimulatedDays

    @property
    def identity(self) -> str:
        """The identity of its log."""
        days = f"{self.span.began_ms}-{self.span.days}"
        return f"simulation-{self.seed}-{self.groups}-{self.partitions}-{days}"

    def names(self) -> list[GroupId]:
        """The group of each number: TEAM-WORK-NUMBER. Some teams have many groups, most have few."""
        random, teams = Random(f"{self.seed} teams"), max(1, self.groups // GROUPS_A_TEAM)
        return [
            GroupId(f"{_team(int(teams * random.random() * random.random()))}-{random.choice(WORK)}-{number:05d}")
            for number in range(self.groups)
        ]

    def by_partition(self) -> dict[int, list[tuple[int, GroupId]]]:
        """The groups of each partition of the log, with their numbers."""
        found: dict[int, list[tuple[int, GroupId]]] = {partition: [] for partition in range(self.partitions)}
        for number, group_id in enumerate(self.names()):
            found[partition_for(group_id, self.partitions)].append((number, group_id))
        return found


def team_of(group_id: str) -> str:
    """The team: what stands before the first hyphen of the group's name."""
    return group_id.partition("-")[0]


def _team(number: int) -> str:
    name, again = TEAMS[number % len(TEAMS)], number // len(TEAMS)
    return f"{name}{again + 1}" if again else name
