"""Storms: incidents of several groups with a common cause.

The coordinator was unreachable, or the processes of one host were in trouble at the same time. Pure: the incidents come
from `digest.py`, the only reader of all groups' incidents.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from enum import StrEnum, unique
from typing import Final

import msgspec

from muster.events.ids import GroupId
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.runs import runs
from muster.replay.incidents.windows import STORM_GROUPS_MIN, STORM_NEXT_MS
from muster.replay.rebalances.wording import host
from muster.replay.text.times import Instant, instant, wall_ms_of

OUTAGES: Final = frozenset({"coordinator-outage", "coordinator-change"})
OF_PROCESSES: Final = frozenset(
    {"crash", "crash-loop", "network-cut", "restart", "slow-member", "poll-timeout", "stopped"}
)
NOWHERE: Final = ("127.", "::1", "0:0:0:0:0:0:0:1")
"""Clients behind a sidecar on their own machine connect from loopback, so their host is meaningless."""


@unique
class StormKind(StrEnum):
    COORDINATOR = "coordinator"
    HOST = "host"


class Storm(msgspec.Struct, frozen=True, kw_only=True):
    """Incidents of several groups with a common cause. `client_host`: the host, if its processes are the cause.

    `ended_at`: None while an incident is still open. `times`: the highest number of incidents in one group; for an
    outage, how often the coordinator was unreachable.
    """

    kind: StormKind
    started_at: Instant
    ended_at: Instant | None
    times: int
    groups: tuple[GroupId, ...]
    incidents: int
    rebalances: int
    client_host: str | None = None


class IncidentBrief(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an incident that are needed to find storms."""

    id: tuple[GroupId, str]
    started_ms: int
    ended_ms: int | None
    rebalances: int
    client_host: str | None
    """The host whose processes were in trouble; None if the coordinator was."""


def id_of(incident: Incident) -> tuple[GroupId, str]:
    """Return the identity of an incident among those of all groups."""
    return incident.group_id, incident.id


def briefs_of(incident: Incident) -> Iterator[IncidentBrief]:
    """Yield the brief of an incident that can be part of a storm: of a coordinator, or of processes that all run on one
    known host.
    """
    client_host = None
    if incident.kind in OF_PROCESSES:
        hosts = {host(each.client_host) for each in incident.culprits}
        told = [each for each in hosts if each and not each.startswith(NOWHERE)]
        if len(told) != 1:
            return
        client_host = told[0]
    elif incident.kind not in OUTAGES:
        return
    yield IncidentBrief(
        id=id_of(incident),
        started_ms=wall_ms_of(incident.started_at),
        ended_ms=None if incident.ended_at is None else wall_ms_of(incident.ended_at),
        rebalances=len(incident.rebalances),
        client_host=client_host,
    )


def storms_in(briefs: list[IncidentBrief]) -> Iterator[tuple[Storm, list[IncidentBrief]]]:
    """Yield the storms, and the incidents that each consists of; an incident is in at most one."""
    yield from _storms_of([brief for brief in briefs if brief.client_host is None], StormKind.COORDINATOR, None)
    by_host: defaultdict[str, list[IncidentBrief]] = defaultdict(list)
    for brief in briefs:
        if brief.client_host is not None:
            by_host[brief.client_host].append(brief)
    for client_host in sorted(by_host):
        yield from _storms_of(by_host[client_host], StormKind.HOST, client_host)


def _storms_of(
    briefs: list[IncidentBrief], kind: StormKind, client_host: str | None
) -> Iterator[tuple[Storm, list[IncidentBrief]]]:
    """Find incidents of several groups that began soon after each other."""
    in_order = sorted(briefs, key=lambda each: each.started_ms)
    for run in runs(in_order, lambda run, brief: brief.started_ms - run[-1].started_ms <= STORM_NEXT_MS):
        times = Counter(each.id[0] for each in run)
        groups = sorted(times)
        ends = [each.ended_ms for each in run]
        if len(groups) >= STORM_GROUPS_MIN:
            storm = Storm(
                kind=kind,
                started_at=instant(run[0].started_ms),
                ended_at=None if None in ends else instant(max(each for each in ends if each is not None)),
                times=max(times.values()),
                groups=tuple(groups),
                incidents=len(run),
                rebalances=sum(each.rebalances for each in run),
                client_host=client_host,
            )
            yield storm, run
