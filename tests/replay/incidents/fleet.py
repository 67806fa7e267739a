"""A group of processes with names, hosts and clients of a test's choice, played by the rules, and its incidents.

The processes and the coordinator are simulated (`replay/fleet/simulation`); no relevant choice is random.
"""

import re
from collections.abc import Iterable
from random import Random

import pytest

from muster.coordinator.group.commands import (
    AlterGroupConfig,
    ConfigChange,
    ConfigOperation,
    LeaveGroup,
    LeavingMember,
)
from muster.coordinator.group.settings import GroupSettings
from muster.events.ids import UNKNOWN_MEMBER_ID, GroupInstanceId
from muster.events.records import FORMAT_LEVEL
from muster.replay.fleet.simulation.world import outages
from muster.replay.fleet.simulation.world.client import Setup
from muster.replay.fleet.simulation.world.process import Process
from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.fleet.simulation.world.world import World
from muster.replay.history.items import with_gaps
from muster.replay.incidents.incident import Incident
from muster.replay.text.times import instant
from tests.replay.incidents.levels import at_level
from tests.replay.whole import History, incidents

QUIET_MS = 660_000
"""Longer than all windows, so that the start is an incident of its own."""
OLDER = 3
"""The last format level without the fields that explain events."""
BOTH = pytest.mark.parametrize("level", [FORMAT_LEVEL, OLDER])


def crashed(level: int) -> tuple[str, str]:
    """Return a crash's grade and words; from format level 6 on the log shows that its connection was closed."""
    if level < FORMAT_LEVEL:
        return "recorded", "fell silent without leaving"
    return "inferred", "ended without leaving, which closed its connection"


BY_ADMIN = "asked for by client admin-1 at 10.0.200.1, User:admin"


class Fleet:
    """The processes `app-1`, `app-2`, ..., each on a host of its own, in a Stable group. Times are in ms."""

    def __init__(
        self,
        size: int = 3,
        *,
        library: str = "java",
        static: int = 0,
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        assignors: tuple[str, ...] = ("range",),
        poll_ms: int = 300,
    ) -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=3_000)
        self.world = World(Random(7), settings=settings, partitions={"orders": 12})
        self.story = self.world.story("whatever was done")
        self._static = static
        self._setup = Setup(
            name="",
            client_id="",
            host="",
            instance=None,
            library=library,
            version=9,
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            assignors=assignors,
            heartbeat_ms=3_000 if session_ms > 6_000 else 2_000,
            poll_ms=poll_ms,
            assign_ms=50,
        )
        for number in range(1, size + 1):
            self.start(number)
        self.world.settle(5_000)
        self.run(QUIET_MS)
        self.began_ms = self.wall_ms

    @property
    def wall_ms(self) -> int:
        return self.world.wall_ms

    def run(self, duration_ms: int) -> None:
        self.world.run(duration_ms)

    def rest(self, duration_ms: int = 0) -> None:
        self.world.settle(duration_ms)

    # ---- processes --------------------------------------------------------------------------------------------------

    def setup(self, number: int) -> Setup:
        name = f"app-{number}"
        return self._setup.but(
            name=name,
            client_id=name,
            host=f"/10.0.{1 if number <= 5 else 2}.{number}",
            instance=name if number <= self._static else None,
        )

    def start(self, number: int, setup: Setup | None = None) -> Process:
        return self.world.add(setup or self.setup(number), self.story)

    def __getitem__(self, number: int) -> Process:
        return next(each for each in self.world.processes if each.name == f"app-{number}")

    def restart(
        self, number: int, down_ms: int, *, kill: bool = False, reason: str | None = "the consumer is being closed"
    ) -> None:
        """End the process now, and start it again after this time. `reason`: the reason of its client, if it leaves."""
        process = self[number]
        if kill:
            process.die()
        else:
            process.close(reason)
        self.world.at(down_ms, lambda: (self.start(number), None)[1])

    def configure(self, name: str, value: str) -> None:
        """Let an administrator set a config of the group."""
        change = ConfigChange(name=name, operation=ConfigOperation.SET, value=value)
        self.world.administer(
            self.story,
            lambda caller: AlterGroupConfig(group_id=GROUP_ID, caller=caller, changes=(change,), validate_only=False),
        )

    # ---- the coordinator --------------------------------------------------------------------------------------------

    def away(self, duration_ms: int, *, seen_before_ms: int | None = 2_000, orderly: bool = False) -> None:
        """Kill the coordinator; it last recorded that it was alive this long before, or never."""
        seen_ms = None if seen_before_ms is None else self.wall_ms - seen_before_ms
        outages.take_down(self.world, orderly=orderly)
        self.run(duration_ms)
        outages.bring_up(self.world, self.story, seen_ms=seen_ms)

    def paused(self, duration_ms: int) -> None:
        """Pause the coordinator (SIGSTOP)."""
        outages.pause(self.world)
        self.run(duration_ms)
        outages.resume(self.world)

    # ---- what is told -----------------------------------------------------------------------------------------------

    def history(self, level: int = FORMAT_LEVEL) -> History:
        """Return the history as a log of this format level has it."""
        items = tuple(with_gaps(self.world.rules.reads))
        return at_level(History(group_id=GROUP_ID, log="fleet", items=items), level)

    def told(self, level: int = FORMAT_LEVEL) -> list[Incident]:
        """Return the incidents since the group became Stable; call `rest` first."""
        return [each for each in incidents(self.history(level)) if (each.ended_at or "9") >= instant(self.began_ms)]

    def only(self, level: int = FORMAT_LEVEL) -> Incident:
        (incident,) = self.told(level)
        return incident


def remove(fleet: Fleet, *numbers: int) -> None:
    """Let an administrator remove these static members."""
    leaving = tuple(
        LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=GroupInstanceId(f"app-{number}"), reason=None)
        for number in numbers
    )
    fleet.world.administer(
        fleet.story, lambda caller: LeaveGroup(group_id=GROUP_ID, caller=caller, members=leaving), api_key=13
    )


def of_kind(reported: Iterable[Incident], kind: str) -> Incident:
    (found,) = [each for each in reported if each.kind == kind]
    return found


def expect(incident: Incident, kind: str, grade: str, headline: str, *culprits: str) -> None:
    """Check kind, grade, culprits and headline; '...' in the headline matches anything."""
    assert (incident.kind, incident.grade) == (kind, grade), shown(incident)
    assert re.fullmatch(re.escape(headline).replace(r"\.\.\.", ".*"), incident.headline), shown(incident)
    assert {each.group_instance_id or each.client_id for each in incident.culprits} == set(culprits), shown(incident)


def statements(incident: Incident, *grades: str) -> str:
    """Return the statements of the chain with this grade, or all, one in each line."""
    return "\n".join(each.text for each in incident.chain if not grades or each.grade in grades)


def shown(incident: Incident) -> str:
    """Return the incident as text for failure messages."""
    lines = [f"{incident.kind} ({incident.grade}) {incident.started_at} .. {incident.ended_at}: {incident.headline}"]
    lines += [f"    by {each.group_instance_id or each.client_id} {each.client_host}" for each in incident.culprits]
    lines += [f"    {each.at} {each.grade}: {each.text} {each.seqs}" for each in incident.chain]
    lines += [f"    rebalances: {[each.to_generation for each in incident.rebalances]}"]
    lines += [f"    advice: {each}" for each in incident.advice] + [f"    note: {each}" for each in incident.notes]
    return "\n".join(lines)
