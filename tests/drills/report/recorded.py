"""A drill's recorded measurements for tests: one process of two is killed, and a group on its partition waits."""

from collections.abc import Mapping

import msgspec

from muster.drills.checking import LogRead
from muster.drills.faults import Mark
from muster.drills.measuring.answers import NO_ANSWER, Acknowledged, Asked, Kind, Place
from muster.drills.names import Names
from muster.drills.plan import Fault, Limits, Load, Plan
from muster.drills.report.making import Recorded
from muster.events.causes import Cause
from muster.events.partitioner import partition_for
from muster.replay.history.items import Coordinated
from tests.replay.histories import BEGIN_MS, Script

NAMES = Names("0123456789")
GROUP = NAMES.group(0, static=True)
PARTITIONS = 4
FAULT_MS = BEGIN_MS + 60_000
OWNERS: Mapping[str, str] = {"a:1": "process 1", "b:2": "process 2"}


def script() -> Script:
    """The group's history: it forms, and its coordinator is killed and replaced."""
    script = Script(GROUP, partition=partition_for(GROUP, PARTITIONS)).coordinator("a:1").wait(1_000).created()
    script.start(script.joined(script.member("member-0")))
    script.wait(10).advanced(script.joined(script.member("member-1")))
    script.wait(100).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.wait(10).stabilize({"member-0": {"t": [0]}, "member-1": {"t": [1]}})
    script.wait(FAULT_MS + 700 - script.now_ms).coordinator("b:2", took_ms=400)
    return script


def requests() -> list[Asked]:
    """Members were answered quickly before the fault, and late after it."""
    reported = []
    for number in range(20):
        begin_ms = FAULT_MS - 5_000 + number * 500
        for member in ("member-0", "member-1"):
            for kind in (Kind.HEARTBEAT, Kind.COMMIT):
                is_late = begin_ms == FAULT_MS
                end_ms = FAULT_MS + (1_300 if kind is Kind.HEARTBEAT else 2_600) if is_late else begin_ms + 5
                reported.append(
                    Asked(
                        kind=kind,
                        group_id=GROUP,
                        member=member,
                        began_ms=begin_ms,
                        ended_ms=end_ms,
                        retried=(NO_ANSWER,) if is_late else (),
                    )
                )
    return reported


def recorded(reported: Script | None = None, **changes: object) -> Recorded:
    """Everything, with changes."""
    script_ = reported or script()
    places = {Place(group_id=GROUP, generation_id=1, member_id=member_id) for member_id in script().group.members}
    history = script_.history()
    made = Recorded(
        plan=Plan(
            fault=Fault.TAKEOVER,
            load=Load(groups=1, members=2),
            limits=Limits(heartbeats_ms=3_000, joins_ms=5_000, commits_ms=5_000),
        ),
        run=NAMES.run,
        service="2 processes",
        static_groups=1,
        began_ms=FAULT_MS - 5_000,
        over_ms=FAULT_MS + 2_700,
        ended_ms=FAULT_MS + 5_000,
        marks=(Mark(at_ms=FAULT_MS, text="kill -9 of process 1", is_fault=True, process="process 1", ended="killed"),),
        asked=requests(),
        acknowledged=Acknowledged(places=places, joins=2, commits={(GROUP, 0): 9}, commit_count=9),
        log=LogRead(
            histories={GROUP: history.items},
            owners=tuple(each.event for each in script_.reads if isinstance(each, Coordinated)),
        ),
        partitions=PARTITIONS,
        offsets={(GROUP, 0): 9},
        name_of=lambda owner: OWNERS.get(owner, owner),
    )
    return msgspec.structs.replace(made, **changes)


def rebalanced() -> Script:
    """The same, and then a member expires."""
    story = script()
    story.wait(1_000).start(story.removed(story.of("member-1"), Cause.SESSION_EXPIRED, silent_ms=45_010))
    story.wait(500).complete(story.rejoined(story.of("member-0")))
    story.wait(10).stabilize({"member-0": {"t": [0, 1]}})
    return story
