"""A recorded history through the rules again gives the same events. The histories here are made by the rules."""

import random
from collections.abc import Callable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from coordinator.group.commands import ExpireSession, JoinGroup, LeaveGroup, LeavingMember
from coordinator.group.settings import GroupSettings
from events.causes import Cause
from events.events import AnyEvent, CoordinatorElected, CoordinatorReady, MemberAssigned, MemberRemoved
from events.ids import UNKNOWN_MEMBER_ID
from events.state import GroupState
from replay.history import Coordinated, Happened, History, Place, Read, with_gaps
from replay.rerun import Rerun, comparable, rerun
from tests.coordinator.group.client import Client, protocols
from tests.coordinator.group.harness import DELAY_MS, GROUP_ID, Harness


def history_of(harness: Harness, *given: GroupSettings) -> History:
    """What the harness has recorded, with the coordinators that came between, and the settings of each."""
    by_epoch = given or (harness.settings,)
    reads: list[Read] = [_elected(by_epoch[0])]
    epoch = 0
    for offset, event in enumerate(harness.events):
        place = Place(partition=0, offset=offset, timestamp_ms=event.why.decided_ms)
        if event.owner_epoch != epoch:
            epoch = event.owner_epoch
            reads.append(_elected(by_epoch[min(epoch, len(by_epoch) - 1)]))
            reads.append(_ready(event, place))
        reads.append(Happened(place=place, event=event))
    return History(group_id=GROUP_ID, log="harness", items=tuple(with_gaps(reads)))


def _elected(given: GroupSettings) -> Coordinated:
    event = CoordinatorElected(
        partition=0,
        owner_epoch=0,
        owner="a:1",
        elected_ms=0,
        version="0",
        format_level=1,
        settings={
            "group.initial.rebalance.delay.ms": str(given.initial_rebalance_delay_ms),
            "group.min.session.timeout.ms": str(given.min_session_timeout_ms),
            "group.max.session.timeout.ms": str(given.max_session_timeout_ms),
            "group.max.size": str(given.max_size),
        },
    )
    return Coordinated(place=Place(partition=0, offset=0, timestamp_ms=0), event=event)


def _ready(event: AnyEvent, place: Place) -> Coordinated:
    ready = CoordinatorReady(
        partition=0,
        owner_epoch=event.owner_epoch,
        owner="a:1",
        ready_ms=event.why.decided_ms,
        took_ms=0,
        events_read=0,
        groups=1,
        members=0,
        incarnation_max=0,
    )
    return Coordinated(place=place, event=ready)


def assert_same(harness: Harness, *given: GroupSettings) -> Rerun:
    again = rerun(history_of(harness, *given))
    assert again.differences == ()
    assert again.skipped == 0
    explained = [seq for taken in again.inputs for seq in range(taken.first_seq, taken.last_seq + 1)]
    assert explained == [event.seq for event in harness.events]
    return again


def test_a_life_from_the_first_join_to_the_deletion() -> None:
    """Joins of all kinds, syncs, a restart, an expiry, leaves, deletion: each is derived and decided alike."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.dynamic("b"), h.dynamic("c", version=3))
    a = a.restarted()
    assert a.join().decision.group == h.group
    b.join(protocols=protocols("roundrobin", "range"))
    h.rejoin_all(c, a)
    b.sync(h.assignments())
    h.leave_instance("a")
    for client in (b, c):
        client.join()
    h.sync_all(b, c)
    b.leave("the consumer is being closed")
    h.sleep(120_000)
    h.delete()
    assert h.group is None
    again = assert_same(h)
    assert any(isinstance(taken.command, ExpireSession) for taken in again.inputs)
    assert any(isinstance(taken.command, LeaveGroup) for taken in again.inputs)


def test_a_batch_of_leavers_is_one_command() -> None:
    """An administrator removes three; one of the entries is fenced, one is unknown."""
    h = Harness()
    a, b, c = h.stable_group(h.static("a"), h.static("b"), h.static("c"))
    h.leave(
        LeavingMember(member_id=UNKNOWN_MEMBER_ID, group_instance_id=a.instance, reason="too old"),
        LeavingMember(member_id=a.member_id, group_instance_id=b.instance, reason=None),
        LeavingMember(member_id=c.member_id, group_instance_id=c.instance, reason="bye"),
    )
    again = assert_same(h)
    leaves = [taken.command for taken in again.inputs if isinstance(taken.command, LeaveGroup)]
    assert [len(leave.members) for leave in leaves] == [3]


def test_refusals_are_derived_too() -> None:
    """Wrong protocols, unknown ids, fenced instances, a full group."""
    h = Harness(max_size=3)
    a, b = h.stable_group(h.static("a"), h.dynamic("b"))
    h.dynamic("odd", protocols=protocols("other")).enter()
    h.dynamic("stranger", member_id="nobody").join()
    old, a = a, a.restarted()
    a.join()
    old.heartbeat()
    old.join()
    c = h.static("c")
    c.join()
    h.rejoin_all(a, b)
    h.static("surplus").join()
    causes = {event.why.cause for event in h.events}
    assert causes >= {Cause.PROTOCOL_MISMATCH, Cause.UNKNOWN_MEMBER, Cause.INSTANCE_FENCED, Cause.GROUP_FULL}
    assert_same(h)
    assert b.member_id in h.live.members


def test_the_ends_of_phases_are_derived() -> None:
    """A join phase that ran out of time, a sync phase that did, an assignment that could not be stored."""
    h = Harness()
    patient = {"session_timeout_ms": 200_000, "rebalance_timeout_ms": 20_000}
    a, b = h.stable_group(h.static("a", **patient), h.dynamic("b", **patient))
    a.join(protocols=protocols("roundrobin", "range"))
    h.sleep(100_000)
    assert {event.why.cause for event in h.events} >= {
        Cause.NOT_REJOINED,
        Cause.JOIN_PHASE_TIMED_OUT,
        Cause.SYNC_TIMED_OUT,
    }
    h.stable_group(h.static("c"), h.static("d"))
    assert_same(h)
    assert b.member_id not in h.live.members


def test_a_rejected_assignment_and_an_overfull_group() -> None:
    """Rebalances that no member's event begins."""
    h = Harness()
    a, b = h.form(h.static("a"), h.static("b"))
    leader = a if a.is_leader else b
    h.reject_assignment(leader, ErrorCode.unknown_server_error)
    h.rejoin_all(a, b)
    roomy, h.settings = h.settings, msgspec.structs.replace(h.settings, max_size=1)
    h.takeover()
    assert Cause.OVER_CAPACITY in {event.why.cause for event in h.events}
    assert_same(h, roomy, h.settings)


def test_ids_that_were_handed_out_and_never_used() -> None:
    """They hold up a join phase; the log does not have them, the re-run finds that there must have been one."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    h.dynamic("pending").join()
    a.restarted(protocols=protocols("roundrobin", "range")).join()
    b.join()
    b.leave()
    h.sleep(100_000)
    assert_same(h)


def test_a_rebalance_in_flight_goes_on_after_a_takeover() -> None:
    """What was parked is lost, and comes again."""
    h = Harness()
    a, b = h.stable_group(h.static("a"), h.static("b"))
    leader, follower = (a, b) if a.is_leader else (b, a)
    leader.join()
    h.takeover()
    leader.join()
    follower.join()
    h.sync_all(a, b)
    assert h.state is GroupState.STABLE
    assert_same(h)


def test_an_initial_delay_that_ended_without_a_trace() -> None:
    """After a takeover the static members come back late: the delay is over, which wrote nothing."""
    h = Harness()
    a, b = h.static("a"), h.static("b")
    a.enter()
    b.enter()
    h.takeover()
    h.sleep(3 * DELAY_MS)
    a.join()
    b.join()
    assert h.state is GroupState.COMPLETING_REBALANCE
    assert_same(h)


def test_a_history_that_was_changed_is_found_out() -> None:
    """One assignment forged, and the difference names what was recorded and what the rules decide."""
    h = Harness()
    h.stable_group(h.static("a"), h.static("b"))
    position = next(i for i, event in enumerate(h.events) if isinstance(event, MemberAssigned))
    forged = h.events[position]
    assert isinstance(forged, MemberAssigned)
    h.events[position] = msgspec.structs.replace(
        forged, member=msgspec.structs.replace(forged.member, joined_ms=forged.member.joined_ms + 1)
    )
    (difference,) = rerun(history_of(h)).differences
    assert h.events[position] in difference.recorded
    assert comparable(difference.decided)[0] != comparable(difference.recorded)[0]


def test_after_a_gap_nothing_is_claimed_until_the_group_is_made_anew() -> None:
    """Events behind it are counted as skipped."""
    h = Harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    h.delete()
    before = len(h.events)
    h.sleep(10_000)
    h.stable_group(h.static("b"))
    history = history_of(h)
    kept = [item for item in history.items if not (isinstance(item, Happened) and item.place.offset in (2, 3))]
    again = rerun(msgspec.structs.replace(history, items=tuple(with_gaps(kept))))  # type: ignore[arg-type]
    assert again.differences == ()
    assert again.skipped == before - 2
    assert any(isinstance(taken.command, JoinGroup) for taken in again.inputs)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(5, 60))
def test_whatever_happens_to_a_group_is_decided_alike_again(seed: int, steps: int) -> None:
    """Random requests, restarts, silences and takeovers; the log alone is enough to decide everything again."""
    play = _Play(random.Random(seed))
    for _ in range(steps):
        play.step()
    assert_same(play.harness)


class _Play:
    """A group under random commands; each is one that some client could send."""

    def __init__(self, chance: random.Random) -> None:
        self.harness = Harness(initial_rebalance_delay_ms=chance.choice([0, DELAY_MS]))
        self._chance = chance
        self._clients: list[Client] = []
        self._moves: list[Callable[[], object]] = [
            self._newcomer,
            self._newcomer,
            self._join,
            self._join,
            self._join,
            self._sync,
            self._sync,
            self._sync,
            self._restart,
            self._leave,
            self._remove,
            self._heartbeats,
            self._sleep,
            self._sleep,
            self._long_silence,
            self.harness.takeover,
            self.harness.delete,
        ]

    def step(self) -> None:
        self._chance.choice(self._moves)()
        self.harness.sleep(self._chance.choice([0, 1, 50]))

    def _any(self) -> Client:
        return self._chance.choice(self._clients or [self._new()])

    def _new(self) -> Client:
        h, number = self.harness, len(self._clients)
        version = self._chance.choice([3, 5, 9])
        client = h.static(f"i{number % 4}") if self._chance.random() < 0.5 else h.dynamic(f"d{number}", version=version)
        self._clients.append(client)
        return client

    def _newcomer(self) -> None:
        self._new().enter()

    def _join(self) -> None:
        client = self._any()
        if self._chance.random() < 0.2:
            client.protocols = protocols(*self._chance.sample(["range", "roundrobin"], 2))
        client.enter()

    def _sync(self) -> None:
        for client in self._chance.sample(self._clients, self._chance.randint(0, len(self._clients))):
            client.sync(self.harness.assignments() if client.is_leader and self.harness.group else None)

    def _restart(self) -> None:
        client = self._any().restarted()
        self._clients.append(client)
        client.enter()

    def _leave(self) -> None:
        self._any().leave(self._chance.choice([None, "the consumer is being closed"]))

    def _remove(self) -> None:
        self.harness.leave_instance(*self._chance.sample(["i0", "i1", "i2", "i3"], 2))

    def _heartbeats(self) -> None:
        for client in self._clients:
            client.heartbeat()

    def _sleep(self) -> None:
        self.harness.sleep(self._chance.choice([100, DELAY_MS, 5_000]))

    def _long_silence(self) -> None:
        self.harness.sleep(self._chance.choice([11_000, 70_000]))


def test_the_random_play_reaches_what_it_is_for() -> None:
    """Over a few seeds, all sorts of removals happen."""
    causes: set[Cause] = set()
    for seed in range(30):
        play = _Play(random.Random(seed))
        for _ in range(60):
            play.step()
        causes |= {event.why.cause for event in play.harness.events if isinstance(event, MemberRemoved)}
    assert causes >= {Cause.SESSION_EXPIRED, Cause.NOT_REJOINED, Cause.MEMBER_LEFT, Cause.MEMBER_REMOVED_BY_ADMIN}
