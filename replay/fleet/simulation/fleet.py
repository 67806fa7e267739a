"""A fleet: its groups and teams by name, the partitions of the log that they are in, and its days.

Scenarios and outages have rates by day and hour. They are drawn hour by hour, with only products and comparisons, so
that all machines get the same results. Rates are per week of seven days, and per group (outages: per partition of the
log). scenarios/ has what each scenario does.

A scenario takes LONGEST_MS at most, and none starts that close to an outage or to the end, so that the cause of a
rebalance is never in doubt unless a scenario intends it.
"""

from collections.abc import Iterator
from enum import StrEnum, unique
from random import Random
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.replay.text.times import DAY_MS

HOUR_MS: Final = 3_600_000
LONGEST_MS: Final = 5 * HOUR_MS
EPOCH_WEEKDAY: Final = 3
"""1970-01-01 was a Thursday; Monday is 0."""


@unique
class When(StrEnum):
    """The hours (UTC) in which a scenario is played."""

    OFFICE = "Monday to Friday, 9 to 17"
    MORNING = "Monday to Friday, 6 to 9"
    EVENING = "Monday to Friday, 18 to 21"
    NIGHT = "every day, 0 to 5"
    ANY = "at any hour"


HOURS: Final = {
    When.OFFICE: [day * 24 + hour for day in range(5) for hour in range(9, 17)],
    When.MORNING: [day * 24 + hour for day in range(5) for hour in range(6, 9)],
    When.EVENING: [day * 24 + hour for day in range(5) for hour in range(18, 21)],
    When.NIGHT: [day * 24 + hour for day in range(7) for hour in range(5)],
    When.ANY: [*range(7 * 24)],
}
"""The hours of a week, which begins on Monday."""


class Rate(msgspec.Struct, frozen=True):
    """How often a scenario is played in a week, and when; `once`: at most once per group, since it cannot be
    repeated."""

    scenario: str
    a_week: float
    when: When = When.ANY
    once: bool = False


RATES: Final = (
    Rate("rolling-deployment", 2, When.OFFICE),
    Rate("deployment", 0.5, When.OFFICE),
    Rate("deployment-by-crashes", 0.1, When.OFFICE),
    Rate("deployment-at-once", 0.3, When.OFFICE),
    Rate("blue-green", 0.2, When.OFFICE),
    Rate("crash-in-deployment", 0.1, When.OFFICE),
    Rate("deployment-then-scale-up", 0.05, When.OFFICE),
    Rate("absorbed-deployment", 0.5, When.OFFICE),
    Rate("assignor-deployment", 0.02, When.OFFICE, once=True),
    Rate("subscription-change", 0.02, When.OFFICE, once=True),
    Rate("partitions-changed", 0.03, When.OFFICE, once=True),
    Rate("removed-by-admin", 0.03, When.OFFICE),
    Rate("enforced-by-administrator", 0.03, When.OFFICE),
    Rate("enforced-by-application", 0.03),
    Rate("group-deleted", 0.01, When.OFFICE),
    Rate("scale-up", 0.8, When.MORNING),
    Rate("scale-down", 0.8, When.EVENING),
    Rate("shutdown-and-start", 0.1, When.NIGHT),
    Rate("crash", 0.3),
    Rate("two-crashes", 0.02),
    Rate("all-crash-and-restart", 0.02),
    Rate("restart", 0.7),
    Rate("restart-at-once", 0.4),
    Rate("absorbed-restart", 0.5),
    Rate("frozen", 0.1),
    Rate("short-freeze", 0.2),
    Rate("crash-loop", 0.1),
    Rate("poll-timeout", 0.6),
    Rate("network-cut", 0.08),
    Rate("network-cut-for-good", 0.02),
    Rate("short-cut", 0.1),
    Rate("duel", 0.02),
    Rate("overlapping-restart", 0.05),
    Rate("slow-member", 0.4),
    Rate("dropped-member", 0.05),
    Rate("slow-leader", 0.1),
    Rate("leader-timed-out", 0.02),
    Rate("leader-dies-in-sync-phase", 0.02),
    Rate("unused-id", 0.05),
)


@unique
class End(StrEnum):
    """How a coordinator fails."""

    STOP = "an orderly stop"
    KILL = "its death"
    PAUSE = "a pause of its process"


class OutageRate(msgspec.Struct, frozen=True):
    """How often in a week, when, and for how long (minimum and maximum)."""

    end: End
    a_week: float
    when: When
    shortest_ms: int
    longest_ms: int


OUTAGES: Final = (
    OutageRate(End.STOP, 0.5, When.NIGHT, 500, 5_000),
    OutageRate(End.KILL, 0.2, When.ANY, 2_000, 90_000),
    OutageRate(End.PAUSE, 0.2, When.ANY, 1_000, 30_000),
)
SIGN_OF_LIFE_MS: Final = 5_000
"""The maximum time between a coordinator's last sign of life and its death."""


class Deed(msgspec.Struct, frozen=True, order=True):
    """A scenario, and the earliest time at which to play it (wall clock, ms)."""

    at_ms: int
    scenario: str
    once: bool = False


class Outage(msgspec.Struct, frozen=True, order=True):
    """A time without a coordinator for all groups of a partition, from `at_ms` on (wall clock, ms)."""

    at_ms: int
    away_ms: int
    end: End
    seen_before_ms: int


class SimulatedDays(msgspec.Struct, frozen=True):
    """The simulated days; wall clock, ms. They start at midnight UTC."""

    began_ms: int
    days: int

    @property
    def ends_ms(self) -> int:
        return self.began_ms + self.days * DAY_MS

    def hours(self) -> Iterator[tuple[int, int]]:
        """The start of each hour, and its number in the week."""
        first = (self.began_ms // DAY_MS + EPOCH_WEEKDAY) % 7 * 24
        for number in range(self.days * 24):
            yield self.began_ms + number * HOUR_MS, (first + number) % (7 * 24)


def deeds(random: Random, span: SimulatedDays) -> list[Deed]:
    """The scenarios of a group, in order, including those that the group cannot play."""
    chances = [(rate, frozenset(HOURS[rate.when]), rate.a_week / len(HOURS[rate.when])) for rate in RATES]
    drawn = [
        Deed(began_ms + random.randrange(HOUR_MS), rate.scenario, rate.once)
        for began_ms, hour in span.hours()
        for rate, hours, chance in chances
        if hour in hours and random.random() < chance
    ]
    return sorted(drawn)


def outages(random: Random, span: SimulatedDays) -> list[Outage]:
    """The outages of a partition, in order, at least LONGEST_MS apart."""
    drawn: list[Outage] = []
    for began_ms, hour in span.hours():
        for rate in OUTAGES:
            hours = HOURS[rate.when]
            if hour not in hours or random.random() >= rate.a_week / len(hours):
                continue
            outage = Outage(
                began_ms + random.randrange(HOUR_MS),
                random.randint(rate.shortest_ms, rate.longest_ms),
                rate.end,
                random.randint(0, SIGN_OF_LIFE_MS),
            )
            earliest_ms = (drawn[-1].at_ms if drawn else span.began_ms) + LONGEST_MS
            if earliest_ms <= outage.at_ms <= span.ends_ms - LONGEST_MS:
                drawn.append(outage)
    return drawn


TEAMS: Final = (
    "checkout", "payments", "catalog", "search", "billing", "shipping", "fraud", "identity", "pricing", "returns",
    "ads", "loyalty", "stock", "support", "mail", "ledger", "maps", "media", "reports", "risk",
)  # fmt: skip
WORK: Final = ("orders", "events", "invoices", "audit", "enrich", "index", "notify", "export", "dedupe", "archive")
GROUPS_A_TEAM: Final = 25


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """The fleet to simulate. The same values give the same events on any machine."""

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
        """The id of each group, by number: TEAM-WORK-NUMBER. Some teams have many groups, most have few."""
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
    """The team: the part of the group's name before the first hyphen."""
    return group_id.partition("-")[0]


def _team(number: int) -> str:
    name, again = TEAMS[number % len(TEAMS)], number // len(TEAMS)
    return f"{name}{again + 1}" if again else name
