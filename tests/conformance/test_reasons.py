"""Kafka's log and Muster's events have a reason for each rebalance: the same ones in both (section RS).

A story is played on both servers. Then the lines `Preparing to rebalance group ... (reason: ...)` of a real broker's
log are compared with Muster's `RebalanceStarted` events: there are as many of them, each reason has its cause, and both
name the same member.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest

from muster.events.causes import Cause
from muster.events.events import RebalanceStarted
from muster.events.ids import GroupId
from muster.events.log.url import open_log
from muster.replay.history.items import Happened
from tests.brokers.restartable import RestartableBroker
from tests.conformance.eras import NEWEST
from tests.conformance.member import ORDERS, OTHER, RANGE_FIRST, ROUNDROBIN_FIRST, SHORT_MS, TOPICS, Member
from tests.conformance.servers import Server, server_at
from tests.conformance.stage import Stage
from tests.muster_process import running_muster, sqlite_log
from tests.replay.whole import read_histories

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]

(ERA,) = NEWEST
REBALANCE: Final = re.compile(r"Preparing to rebalance group (\S+) in state PreparingRebalance .* \(reason: (.*)\)\. ")
BY_REQUEST: Final = r"explicit `LeaveGroup` request for \((?P<members>.*)\) members\."
LEFT: Final = (Cause.MEMBER_LEFT, Cause.MEMBER_REMOVED_BY_ADMIN, Cause.PENDING_MEMBER_LEFT)

CAUSES: Final[Mapping[str, Sequence[Cause]]] = {
    r"Adding new member (?P<members>\S+) with group instance id null; client reason: .+": [Cause.NEW_DYNAMIC_MEMBER],
    r"Adding new member (?P<members>\S+) with group instance id \w; client reason: .+": [Cause.NEW_STATIC_MEMBER],
    r"Updating metadata for member (?P<members>\S+) during (Stable|CompletingRebalance); client reason: .+": [
        Cause.METADATA_CHANGED
    ],
    r"Leader (?P<members>\S+) re-joining group during Stable; client reason: .+": [Cause.LEADER_REJOINED],
    r"Group's selectedProtocol will change because static member (?P<members>\S+) with instance id \w joined with "
    r"change of protocol; client reason: .+": [Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL],
    r"Updating metadata for static member (?P<members>\S+) with instance id \w; client reason: .+": [
        Cause.STATIC_REPLACEMENT_DURING_SYNC
    ],
    r"removing member (?P<members>\S+) on heartbeat expiration\.": [Cause.SESSION_EXPIRED],
    r"Removing \[(?P<members>.+)\] on pending sync request expiration": [Cause.SYNC_TIMED_OUT],
    BY_REQUEST: LEFT,
}
"""Every reason that Kafka gives in these stories, and the possible causes for it. The members are those it names."""


class Story(msgspec.Struct, frozen=True):
    """`cause` is that of the last rebalance; `play` returns the member that Kafka names for it, if any."""

    cause: Cause
    play: Callable[[Stage], Awaitable[Member | None]]


STORIES: Final[list[Story]] = []


def story(cause: Cause) -> Callable[[Callable[[Stage], Awaitable[Member | None]]], None]:
    """Register a story."""
    return lambda play: STORIES.append(Story(cause, play))


# ---- stories -------------------------------------------------------------------------------------


@story(Cause.NEW_DYNAMIC_MEMBER)
async def a_dynamic_member_comes(stage: Stage) -> Member:
    await stage.stable("a")
    b = await stage.member("b")
    await b.enter()
    await stage.until(members=2)
    return b


@story(Cause.NEW_STATIC_MEMBER)
async def a_static_member_comes(stage: Stage) -> Member:
    await stage.stable("a")
    b = await stage.member("b", "b")
    b.join("")
    group = await stage.until(members=2)
    (b.member_id,) = (each["member_id"] for each in group["members"] if each["group_instance_id"] == "b")
    return b


@story(Cause.METADATA_CHANGED)
async def a_follower_wants_something_else(stage: Stage) -> Member:
    _, b = await stage.stable("a", "b")
    b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    return b


@story(Cause.METADATA_CHANGED)
async def a_follower_wants_something_else_in_the_sync_phase(stage: Stage) -> Member:
    a, b = await stage.stable("a", "b")
    await _all_join(stage, a, b)
    b.join(protocols=OTHER)
    await stage.until(state="PreparingRebalance")
    return b


@story(Cause.LEADER_REJOINED)
async def the_leader_joins_again_and_a_follower_comes_to_it(stage: Stage) -> Member:
    """The follower's join starts nothing, in any case (RS13)."""
    a, b, _ = await stage.stable("a", "b", "c")
    a.join()
    await stage.until(state="PreparingRebalance")
    b.join(protocols=OTHER)
    await stage.heard()
    return a


@story(Cause.STATIC_REPLACEMENT_CHANGED_PROTOCOL)
async def a_restart_changes_the_protocol(stage: Stage) -> Member:
    await stage.stable("a", static=True, protocols=RANGE_FIRST)
    back = await stage.member("a again", "a", protocols=ROUNDROBIN_FIRST)
    await back.join("")
    return back


@story(Cause.STATIC_REPLACEMENT_DURING_SYNC)
async def a_restart_in_the_sync_phase(stage: Stage) -> Member:
    a, b = await stage.stable("a", "b", static=True)
    await _all_join(stage, a, b)
    back = await stage.member("b again", "b")
    join = back.join("")
    await stage.until(state="PreparingRebalance")
    await a.join()
    await join
    return back


@story(Cause.NEW_STATIC_MEMBER)
async def a_restart_that_is_absorbed(stage: Stage) -> None:
    """Neither records it; the last rebalance is the group's first."""
    (a,) = await stage.stable("a", static=True)
    back = await stage.member("a again", "a")
    await back.join("")
    assert a.member_id != back.member_id


@story(Cause.SESSION_EXPIRED)
async def a_session_ends(stage: Stage) -> Member:
    a, b = await stage.members("a", "b")
    b.session_ms = SHORT_MS
    await stage.form(a, b)
    await stage.until(members=1)
    return b


@story(Cause.SYNC_TIMED_OUT)
async def a_member_does_not_sync(stage: Stage) -> Member:
    a, b = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    await _all_join(stage, a, b)
    await a.sync()
    await stage.until(members=1)
    return b


@story(Cause.MEMBER_LEFT)
async def a_member_leaves(stage: Stage) -> Member:
    _, b = await stage.stable("a", "b")
    await b.leave()
    return b


@story(Cause.MEMBER_REMOVED_BY_ADMIN)
async def an_administrator_removes_a_member(stage: Stage) -> Member:
    """Kafka does not log which one (QK9)."""
    a, b = await stage.stable("a", "b", static=True)
    await a.leave(("", "b"))
    return b


@story(Cause.PENDING_MEMBER_LEFT)
async def an_id_that_was_handed_out_leaves(stage: Stage) -> Member:
    await stage.stable("a")
    b = await stage.member("b")
    await b.join("")
    await b.leave()
    return b


@story(Cause.LEADER_REJOINED)
async def a_member_is_dropped_by_the_join_timer(stage: Stage) -> Member:
    """It is not the cause of a rebalance, but part of the running one (RS15)."""
    a, _ = await stage.stable("a", "b", rebalance_ms=SHORT_MS)
    await a.join()
    await a.sync()
    await a.commit({(ORDERS, 0): 1})
    return a


async def _all_join(stage: Stage, first: Member, *others: Member) -> None:
    join = first.join()
    await stage.until(state="PreparingRebalance")
    for each in [*(member.join() for member in others), join]:
        await each


# ---- playing them --------------------------------------------------------------------------------


class Played(msgspec.Struct, frozen=True):
    """One story on one server: its group, and the id of the member that Kafka names."""

    group_id: str
    named: str | None


async def play_all(server: Server) -> list[Played]:
    async def on_stage(story: Story) -> Played:
        stage = Stage(server, ERA)
        try:
            await stage.ready()
            named = await story.play(stage)
        finally:
            stage.hang_up()
        return Played(stage.group_id, named.member_id if named else None)

    return await asyncio.gather(*(on_stage(story) for story in STORIES))


async def causes_of(log_url: str) -> Mapping[GroupId, list[RebalanceStarted]]:
    """The causes of each group's rebalances in Muster's log."""
    log = open_log(log_url, read_only=True)
    await log.open()
    try:
        histories = await read_histories(log)
    finally:
        await log.close()
    return {
        group_id: [
            item.event
            for item in history.items
            if isinstance(item, Happened) and isinstance(item.event, RebalanceStarted)
        ]
        for group_id, history in histories.items()
    }


class Both(msgspec.Struct, frozen=True):
    """The result of one story: Kafka's reasons, Muster's events, and the members that they should name."""

    reasons: Sequence[str]
    kafka_named: str | None
    started: Sequence[RebalanceStarted]
    muster_named: str | None


@pytest.fixture(scope="module")
def stories(restartable_kafka: RestartableBroker, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Both]:
    """The results of each story."""
    directory: Path = tmp_path_factory.mktemp("reasons")
    url = sqlite_log(directory)
    with running_muster(log=url, topics=[f"{topic}:{partitions}" for topic, partitions in TOPICS.items()]) as muster:

        async def both() -> tuple[list[Played], list[Played]]:
            kafka = await server_at(restartable_kafka.bootstrap, is_kafka=True)
            ours = await server_at(muster.bootstrap, is_kafka=False)
            on_kafka, on_muster = await asyncio.gather(play_all(kafka), play_all(ours))
            return on_kafka, on_muster

        on_kafka, on_muster = asyncio.run(both())
        causes = asyncio.run(causes_of(url))
    reasons = REBALANCE.findall(restartable_kafka.said)
    return [
        Both(
            reasons=[reason for group_id, reason in reasons if group_id == kafka.group_id],
            kafka_named=kafka.named,
            started=causes[GroupId(ours.group_id)],
            muster_named=ours.named,
        )
        for kafka, ours in zip(on_kafka, on_muster, strict=True)
    ]


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[story.play.__name__ for story in STORIES])
def test_both_servers_give_the_same_reasons(number: int, stories: Sequence[Both]) -> None:
    """In number, kind and member."""
    both = stories[number]
    causes = [event.why.cause for event in both.started]
    assert len(both.reasons) == len(causes), (both.reasons, causes)
    for reason, cause in zip(both.reasons, causes, strict=True):
        assert any(re.fullmatch(pattern, reason) and cause in of for pattern, of in CAUSES.items()), (reason, cause)
    assert causes[-1] is STORIES[number].cause
    if both.kafka_named is not None:
        named = "request for () members" if causes[-1] is Cause.MEMBER_REMOVED_BY_ADMIN else both.kafka_named
        assert named in both.reasons[-1]
        assert both.started[-1].why.member_id == both.muster_named
