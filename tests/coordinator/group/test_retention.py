"""The expiry of offsets and groups, and when retention starts (section EX, and the quirk QK6)."""

from collections.abc import Callable

import msgspec
import pytest
from kio.schema.errors import ErrorCode

from muster.coordinator.group.commands import ExpireOffsets
from muster.coordinator.group.decide import Decision
from muster.coordinator.group.error_replies import error_replies
from muster.coordinator.group.offsets import OffsetsChange
from muster.coordinator.group.retention import is_kept_without_offsets
from muster.coordinator.group.soft_state import SoftState
from muster.events.causes import Cause
from muster.events.events import GroupCreated, GroupDeleted
from muster.events.ids import GroupInstanceId
from muster.events.state import Group, GroupConfig, GroupState, Registration, new_group
from tests.coordinator.group.client import Client, protocols, subscription
from tests.coordinator.group.harness import Harness, story

MINUTE_MS = 60_000
RETENTION_MS = 2 * MINUTE_MS
PATIENT = {"session_timeout_ms": 5 * MINUTE_MS}


class At(msgspec.Struct, frozen=True):
    """An offset's commit time, and its expiry if it has one."""

    commit_ms: int
    expire_ms: int | None = None


def harness() -> Harness:
    return Harness(offsets_retention_minutes=RETENTION_MS // MINUTE_MS)


def sweep(h: Harness, offsets: dict[tuple[str, int], At] | None = None) -> Decision:
    """Sweep the group, which has these offsets."""
    return h.send(ExpireOffsets(group_id=h.group_id, offsets=offsets or {}, wall_ms=h.wall_ms))


def deleted(h: Harness, *partitions: tuple[str, int]) -> OffsetsChange:
    return OffsetsChange(group_id=h.group_id, deleted=partitions)


def simple_group() -> Harness:
    """A group created by a commit, which never had a member."""
    h = harness()
    h.dynamic("simple").commit()
    return h


def empty_group() -> Harness:
    """A group whose last member has just left."""
    h = harness()
    (a,) = h.stable_group(h.static("a"))
    a.leave()
    assert h.state is GroupState.EMPTY
    return h


# ---- when retention of offsets starts ------------------------------------------------------------


def test_offsets_of_an_empty_group_age_from_when_it_became_empty() -> None:
    """EX2: all of them, whatever the ages of the commits."""
    h = harness()
    (a,) = h.stable_group(h.static("a", **PATIENT))
    offsets = {("orders", 0): At(h.wall_ms)}
    h.sleep(2 * RETENTION_MS)
    a.heartbeat()
    a.leave()
    h.sleep(RETENTION_MS - 1)
    offsets["orders", 1] = At(h.wall_ms)
    assert sweep(h, offsets).offsets is None
    h.sleep(1)
    decision = sweep(h, offsets)
    assert decision.offsets == OffsetsChange(group_id=h.group_id, all_deleted=True)
    assert decision.offsets_expired == 2


def test_offsets_of_unsubscribed_topics_age_from_their_commit() -> None:
    """EX3: in a Stable group of consumers; offsets of subscribed topics never expire."""
    h = harness()
    (a,) = h.stable_group(h.static("a", protocols=protocols(metadata=subscription("orders")), **PATIENT))
    offsets = {("orders", 0): At(h.wall_ms), ("old", 0): At(h.wall_ms), ("old", 1): At(h.wall_ms + 1)}
    h.sleep(RETENTION_MS - 1)
    assert sweep(h, offsets).offsets is None
    h.sleep(1)
    decision = sweep(h, offsets)
    assert decision.offsets == deleted(h, ("old", 0))
    assert decision.offsets_expired == 1
    assert decision.events == ()
    assert a.heartbeat().error is ErrorCode.none


def test_a_stable_group_remains_without_offsets() -> None:
    """EX3, EX8: the last of its offsets may expire; it has members."""
    h = harness()
    (a,) = h.stable_group(h.static("a", **PATIENT))
    old = {("old", 0): At(h.wall_ms - RETENTION_MS)}
    assert sweep(h, old).offsets == deleted(h, ("old", 0))
    assert sweep(h).offsets is None
    assert a.heartbeat().error is ErrorCode.none


def test_offsets_of_a_simple_consumer_age_from_their_commit() -> None:
    """EX4: each separately, though the group has been Empty ever since."""
    h = simple_group()
    h.sleep(RETENTION_MS)
    offsets = {("orders", 0): At(h.wall_ms - RETENTION_MS), ("orders", 1): At(h.wall_ms - RETENTION_MS + 1)}
    decision = sweep(h, offsets)
    assert decision.offsets == deleted(h, ("orders", 0))
    assert h.state is GroupState.EMPTY


def _preparing(h: Harness) -> None:
    a, _ = h.stable_group(h.static("a", **PATIENT), h.static("b", **PATIENT))
    a.join()
    assert h.state is GroupState.PREPARING_REBALANCE


def _completing(h: Harness) -> None:
    h.form(h.static("a", **PATIENT))
    assert h.state is GroupState.COMPLETING_REBALANCE


def _of_another_type(h: Harness) -> None:
    h.stable_group(h.static("a", protocol_type="connect", **PATIENT))


def _undecodable(h: Harness) -> None:
    h.stable_group(h.static("a", protocols=protocols(metadata=b"x" * 60), **PATIENT))


@pytest.mark.parametrize("form", [_preparing, _completing, _of_another_type, _undecodable])
def test_nothing_expires_in_a_group_with_unknown_subscriptions(form: Callable[[Harness], None]) -> None:
    """EX5: in a rebalance, with another protocol type than consumer, or with unreadable subscriptions."""
    h = harness()
    form(h)
    state = h.state
    decision = sweep(h, {("old", 0): At(0), ("old", 1): At(0, expire_ms=0)})
    assert (decision.offsets, decision.offsets_expired, decision.events) == (None, 0, ())
    assert h.state is state


def test_a_group_of_another_type_ages_like_any_other_when_it_is_empty() -> None:
    """EX2 requires a protocol type, but not a particular one."""
    h = harness()
    (a,) = h.stable_group(h.static("a", protocol_type="connect", protocols=protocols(metadata=b"x")))
    a.leave()
    h.sleep(RETENTION_MS)
    assert sweep(h, {("orders", 0): At(h.wall_ms)}).offsets_expired == 1


# ---- the retention time ---------------------------------------------------------------------------


@pytest.mark.parametrize(("age_ms", "expires"), [(RETENTION_MS - 1, False), (RETENTION_MS, True)])
def test_offsets_expire_at_their_retention(age_ms: int, expires: bool) -> None:
    """EX6: to the millisecond."""
    h = simple_group()
    assert sweep(h, {("orders", 0): At(h.wall_ms - age_ms)}).offsets_expired == int(expires)


@pytest.mark.parametrize(("ahead_ms", "expires"), [(1, False), (0, True), (-5, True)])
@pytest.mark.parametrize("group", [simple_group, empty_group])
def test_a_commits_own_retention_replaces_the_usual_one(
    group: Callable[[], Harness],
    ahead_ms: int,
    expires: bool,
) -> None:
    """EX6, OC18: whether it is shorter or longer, and whenever retention of the others starts."""
    h = group()
    h.sleep(2 * RETENTION_MS)
    for committed_ms in (0, h.wall_ms):
        own = {("orders", 0): At(committed_ms, expire_ms=h.wall_ms + ahead_ms), ("orders", 1): At(0, 2**63 - 1)}
        assert sweep(h, own).offsets == (deleted(h, ("orders", 0)) if expires else None)


def test_a_commits_own_retention_cannot_expire_what_is_subscribed() -> None:
    """EX3 before EX6."""
    h = harness()
    h.stable_group(h.static("a", **PATIENT))
    offsets = {("orders", 0): At(0, expire_ms=0), ("old", 0): At(h.wall_ms, expire_ms=h.wall_ms)}
    assert sweep(h, offsets).offsets == deleted(h, ("old", 0))


# ---- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [simple_group, empty_group])
def test_an_empty_group_without_offsets_goes_at_once(group: Callable[[], Harness]) -> None:
    """EX8: there is no grace period; the log has the reason, and the id starts again in a higher incarnation."""
    h = group()
    incarnation = h.live.incarnation
    decision = sweep(h)
    assert story(decision.events) == [(GroupDeleted, Cause.GROUP_EXPIRED)]
    why = decision.events[0].why
    assert (why.member_id, why.client_id, why.arrived_ms) == (None, None, h.wall_ms)
    assert decision.offsets == OffsetsChange(group_id=h.group_id, all_deleted=True)
    assert (h.group, h.soft) == (None, SoftState())
    assert h.describe().state is GroupState.DEAD
    again = h.static("a").join()
    assert again.events[0].incarnation > incarnation
    assert story(again.events)[0] == (GroupCreated, Cause.GROUP_CREATED)


def test_a_group_goes_in_the_sweep_that_takes_its_last_offset() -> None:
    """EX8, DL2: and not before."""
    h = simple_group()
    first = {("orders", 0): At(h.wall_ms, expire_ms=h.wall_ms), ("orders", 1): At(h.wall_ms)}
    assert sweep(h, first).offsets == deleted(h, ("orders", 0))
    assert h.state is GroupState.EMPTY
    decision = sweep(h, {("orders", 1): At(h.wall_ms, expire_ms=h.wall_ms)})
    assert decision.offsets == OffsetsChange(group_id=h.group_id, all_deleted=True)
    assert h.group is None


def test_a_group_between_the_two_steps_of_a_first_join_stays() -> None:
    """QK6, P8: Kafka deletes it, and refuses the id that it has just handed out. Its offsets expire all the same."""
    h = harness()
    a: Client = h.dynamic("a", session_timeout_ms=10_000)
    assert a.join().error is ErrorCode.member_id_required
    assert sweep(h, {("orders", 0): At(0, expire_ms=0)}).offsets == deleted(h, ("orders", 0))
    assert sweep(h).events == ()
    assert a.join().parked
    h.sleep_until_next()
    a.leave()
    b = h.dynamic("b", session_timeout_ms=10_000)
    b.join()
    assert sweep(h).events == ()
    h.sleep(10_000)
    assert story(sweep(h).events) == [(GroupDeleted, Cause.GROUP_EXPIRED)]


def _configured(group: Group) -> None:
    group.config = GroupConfig(target_group_size=2)


def _registered(group: Group) -> None:
    instance = GroupInstanceId("a")
    group.registrations[instance] = Registration(group_instance_id=instance, registered_ms=0)


@pytest.mark.parametrize("prepare", [_configured, _registered])
def test_a_group_that_was_prepared_stays(prepare: Callable[[Group], None]) -> None:
    """Its settings and registrations are an operator's: they wait for the members."""
    group = new_group(Harness().group_id, incarnation=1, wall_ms=0)
    assert not is_kept_without_offsets(group, SoftState())
    prepare(group)
    assert is_kept_without_offsets(group, SoftState())


# ---- offsets that are kept upstream ---------------------------------------------------------------


def upstream() -> Harness:
    return Harness(offsets_retention_minutes=RETENTION_MS // MINUTE_MS, offsets_are_upstream=True)


def test_a_group_with_offsets_upstream_expires_after_the_whole_retention() -> None:
    """EX2: the offsets are not visible here, and upstream keeps them for that long; the generation continues until
    then.
    """
    h = upstream()
    (a,) = h.stable_group(h.static("a", **PATIENT))
    h.sleep(RETENTION_MS)
    a.heartbeat()
    assert sweep(h).events == ()
    a.leave()
    h.sleep(RETENTION_MS - 1)
    assert sweep(h).events == ()
    h.sleep(1)
    assert story(sweep(h).events) == [(GroupDeleted, Cause.GROUP_EXPIRED)]


def test_a_reused_group_restarts_its_retention() -> None:
    """From the last time when it became Empty."""
    h = upstream()
    for _ in range(2):
        (a,) = h.stable_group(h.static("a"))
        a.leave()
        h.sleep(RETENTION_MS - 1)
        assert sweep(h).events == ()


def test_a_group_of_an_abandoned_first_join_expires_after_the_retention() -> None:
    """QK6: and not while the id is still valid."""
    h = upstream()
    h.dynamic("a", session_timeout_ms=2 * RETENTION_MS).join()
    h.sleep(RETENTION_MS)
    assert sweep(h).events == ()
    h.sleep(RETENTION_MS)
    assert story(sweep(h).events) == [(GroupDeleted, Cause.GROUP_EXPIRED)]


# ---- sweeps that come to nothing ------------------------------------------------------------------


def test_a_sweep_finds_no_group() -> None:
    """It was deleted in between."""
    assert sweep(Harness()) == Decision(group=None, soft=SoftState())


def test_a_failed_sweep_sends_no_response() -> None:
    """There is no client to answer."""
    assert (
        error_replies(ExpireOffsets(group_id=Harness().group_id, offsets={}, wall_ms=0), ErrorCode.not_coordinator)
        == ()
    )
