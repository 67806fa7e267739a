"""The generation listener: notified of each new generation, and of requests for a group, before any response."""

import asyncio
from collections.abc import Awaitable, Callable

from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import LeaveGroup, LeavingMember
from muster.events.ids import GroupId
from muster.events.log.memory import MemoryStorage
from tests.simulation.process import GROUP, SimulatedProcess
from tests.simulation.virtual_time import simulate
from tests.waiting import until

Told = list[tuple[GroupId, int, bool]]

OTHER = GroupId("other")


def story(run: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run the test in virtual time."""

    def test() -> None:
        simulate(run())  # type: ignore[arg-type]

    test.__name__, test.__doc__ = run.__name__, run.__doc__
    return test


class Watcher:
    """A process, and every call of its listener."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        self.told: Told = []
        self.process = SimulatedProcess(storage or MemoryStorage(), on_generation=self._on_generation)

    def _on_generation(self, group_id: GroupId, generation_id: int, is_wanted: bool) -> None:
        self.told.append((group_id, generation_id, is_wanted))

    def news(self) -> Told:
        """The calls since the last time."""
        news, self.told = self.told, []
        return news


async def watched(storage: MemoryStorage | None = None) -> tuple[SimulatedProcess, Watcher]:
    watcher = Watcher(storage)
    await watcher.process.start()
    return watcher.process, watcher


@story
async def test_a_group_is_reported_from_its_first_member_to_its_last() -> None:
    """Wanted while the first join waits, then each generation once, then Empty; other changes are not reported."""
    process, watcher = await watched()
    join = process.join("a")
    await asyncio.sleep(0.01)
    assert watcher.news() == [(GROUP, 0, True)]
    joined = await join
    assert watcher.news() == [(GROUP, 1, True)]
    assert (await process.sync(joined)).error is ErrorCode.none
    for _ in range(3):
        assert (await process.heartbeat(joined)).error is ErrorCode.none
        assert (await process.commit(1, joined)).error is ErrorCode.none
    assert watcher.news() == []
    await process.leave(joined.member_id)
    assert watcher.news() == [(GROUP, 2, False)]
    await process.runtime.stop()


@story
async def test_the_watch_is_notified_before_any_response() -> None:
    """The listener was called before the response, and not before the events were durable."""
    process, watcher = await watched()
    joined = await process.stable_group("a")
    watcher.news()
    known: list[Told] = []
    release = process.log.hold_acknowledgements()
    leave = LeaveGroup(
        caller=process.caller(api_key=13, api_version=5),
        group_id=GROUP,
        members=(LeavingMember(member_id=joined["a"].member_id, group_instance_id=None, reason=None),),
    )
    process.runtime.submit(leave, lambda _: known.append(watcher.news()))
    await asyncio.sleep(1)
    assert (known, watcher.told) == ([], [])
    release.set()
    await until(lambda: bool(known), "the leave is answered")
    assert known == [[(GROUP, 2, False)]]
    await process.runtime.stop()


@story
async def test_an_id_that_was_handed_out_wants_the_group() -> None:
    """KIP-394: until it is used, or its time is up."""
    process, watcher = await watched()
    requested = await process.join(requires_known_member_id=True, session_timeout_ms=5_000)
    assert requested.error is ErrorCode.member_id_required
    assert watcher.news() == [(GROUP, 0, True)]
    await asyncio.sleep(4)
    assert watcher.news() == []
    await asyncio.sleep(2)
    assert watcher.news() == [(GROUP, 0, False)]
    await process.runtime.stop()


@story
async def test_a_group_of_an_abandoned_first_join_is_reported_as_gone() -> None:
    """It counts as without a generation; when it is created again it is reported again. A group that never existed is
    not reported.
    """
    process, watcher = await watched()
    joined = await process.stable_group("a")
    await process.leave(joined["a"].member_id)
    watcher.news()
    assert (await process.delete()).error is ErrorCode.none
    assert watcher.news() == [(GROUP, 0, False)]
    assert (await process.heartbeat(joined["a"])).error is ErrorCode.unknown_member_id
    assert (await process.delete()).error is ErrorCode.group_id_not_found
    assert watcher.news() == []
    await process.join("a")
    assert watcher.news() == [(GROUP, 0, True), (GROUP, 1, True)]
    await process.runtime.stop()


@story
async def test_decisions_made_together_are_reported_once() -> None:
    """The last leave and the deletion, queued behind an append: the generation between is not reported."""
    process, watcher = await watched()
    outcomes = await process.stable_group("a", "b")
    watcher.news()
    release = process.log.hold_acknowledgements()
    leaves = [process.leave(joined.member_id) for joined in outcomes.values()]
    deletion = process.delete()
    release.set()
    for leave in leaves:
        assert (await leave).error is ErrorCode.none
    assert (await deletion).error is ErrorCode.none
    assert watcher.news() == [(GROUP, 0, False)]
    await process.runtime.stop()


@story
async def test_taken_over_groups_are_reported() -> None:
    """Each existing group, wanted or not, as it is in the log."""
    storage = MemoryStorage()
    first, _ = await watched(storage)
    await first.stable_group("a")
    other = await first.join("x", group_id=OTHER)
    leave = LeavingMember(member_id=other.member_id, group_instance_id=None, reason=None)
    caller = first.caller(api_key=13, api_version=5)
    await first.submit(LeaveGroup(caller=caller, group_id=OTHER, members=(leave,)))
    await first.runtime.stop()
    second, watcher = await watched(storage)
    assert sorted(watcher.news()) == [(GROUP, 1, True), (OTHER, 2, False)]
    await second.runtime.stop()


@story
async def test_an_abandoned_group_is_reported_after_a_takeover() -> None:
    """An id was handed out for it, which is not in the log: without it nothing keeps us in the group upstream."""
    storage = MemoryStorage()
    first, _ = await watched(storage)
    joined = await first.join(requires_known_member_id=True)
    assert joined.error is ErrorCode.member_id_required
    await first.runtime.stop()
    second, watcher = await watched(storage)
    assert watcher.news() == [(GROUP, 0, False)]
    await second.runtime.stop()


@story
async def test_nothing_is_reported_when_the_partition_is_released() -> None:
    """Neither its groups, which continue elsewhere, nor pending decisions; a later takeover reports their state."""
    process, watcher = await watched()
    joined = await process.stable_group("a")
    watcher.news()
    process.log.fail_next_append()
    left = await process.leave(joined["a"].member_id)
    assert left.error is ErrorCode.not_coordinator
    assert watcher.news() == []
    await until(lambda: process.runtime.ready, "the partition is served again")
    assert watcher.news() == [(GROUP, 1, True)]
    held = process.log.hold_acknowledgements()
    late = process.leave(joined["a"].member_id)
    stopping = asyncio.create_task(process.runtime.stop())
    await asyncio.sleep(0.01)
    held.set()
    await stopping
    assert (await late).error is ErrorCode.not_coordinator
    assert watcher.news() == []
