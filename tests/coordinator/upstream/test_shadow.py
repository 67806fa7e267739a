"""One shadow: what it sends next, what answers change, and that no generation's commits land in another one."""

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.shadow import (
    NOT_TOLD,
    Heartbeat,
    Identity,
    Join,
    Leave,
    Refused,
    Shadow,
    Step,
    Sync,
    Where,
    answer_lost,
    follow,
    identity_for,
    is_raised,
    joined,
    left,
    next_step,
    refused,
    step_out,
    synced,
)
from tests.coordinator.upstream.model import INSTANCE_ID, Upstream

FIRST = Identity(member_id="m-1", generation_id=1, group_instance_id=INSTANCE_ID)
SECOND = Identity(member_id="m-1", generation_id=2, group_instance_id=INSTANCE_ID)
REPLACED = Identity(member_id="m-2", generation_id=1, group_instance_id=INSTANCE_ID)
NEW = Shadow(wanted=NOT_TOLD)
RAISED = follow(synced(joined(NEW, FIRST)), 5)


def test_a_new_shadow_joins_syncs_and_rests() -> None:
    """Join without a member id, Sync, then nothing but heartbeats."""
    assert next_step(NEW) == Join("")
    shadow = joined(NEW, FIRST)
    assert next_step(shadow) == Sync(FIRST)
    shadow = synced(shadow)
    assert next_step(shadow) is None
    assert next_step(shadow, heartbeat_is_due=True) == Heartbeat(FIRST)


def test_the_first_generation_needs_no_raise() -> None:
    """S4: an identity that was told for nothing is told for the first generation that comes."""
    assert next_step(RAISED) is None
    assert identity_for(RAISED, 5) == FIRST


def test_no_identity_before_the_sync() -> None:
    """Until then the broker answers commits with 27."""
    shadow = joined(follow(NEW, 5), FIRST)
    assert identity_for(shadow, 5) is None
    assert not is_raised(shadow, 5)
    assert identity_for(synced(shadow), 5) == FIRST


def test_another_generation_is_a_join_of_the_leader() -> None:
    """The old generation keeps its identity until then, and has none from then on."""
    shadow = follow(RAISED, 6)
    assert next_step(shadow) == Join("m-1")
    assert identity_for(shadow, 5) == FIRST
    shadow = joined(shadow, SECOND)
    assert (identity_for(shadow, 5), identity_for(shadow, 6)) == (None, None)
    shadow = synced(shadow)
    assert (identity_for(shadow, 5), identity_for(shadow, 6)) == (None, SECOND)
    assert is_raised(shadow, 5)
    assert not is_raised(shadow, 7)


def test_of_several_raises_the_newest_counts() -> None:
    """Asked for while one is under way, all are done by it."""
    shadow = follow(joined(follow(RAISED, 6), SECOND), 9)
    shadow = synced(shadow)
    assert next_step(shadow) is None
    assert identity_for(shadow, 9) == SECOND


def test_the_same_generation_once_more_is_no_raise() -> None:
    """The partition tells of each change of a group."""
    assert next_step(follow(RAISED, 5)) is None


def test_a_lost_join_joins_anew_and_then_once_more() -> None:
    """S3: a replaced member keeps the generation; if that was told already it has to grow."""
    shadow = answer_lost(follow(RAISED, 6), Join("m-1"))
    assert shadow.where is Where.UNSURE
    assert next_step(shadow) == Join("")
    shadow = synced(joined(shadow, REPLACED))
    assert next_step(shadow) == Join("m-2")
    assert identity_for(shadow, 6) is None


def test_a_retaken_shadow_is_right_at_once() -> None:
    """What a former process told is refused by its member id."""
    shadow = Shadow(wanted=7, where=Where.UNSURE)
    assert next_step(shadow) == Join("")
    shadow = synced(joined(shadow, REPLACED))
    assert next_step(shadow) is None
    assert identity_for(shadow, 7) == REPLACED


def test_nobody_wants_it_any_more() -> None:
    """It leaves, and tells nothing from that moment."""
    shadow = follow(RAISED, None)
    assert next_step(shadow) == Leave("m-1")
    assert identity_for(shadow, 5) is None
    assert next_step(left(shadow)) is None


def test_a_group_of_the_same_name_is_raised_even_for_the_same_number() -> None:
    """The number of a group that is gone says nothing about the next one."""
    shadow = follow(follow(RAISED, None), 5)
    assert identity_for(shadow, 5) is None
    assert next_step(shadow) == Join("m-1")


def test_it_leaves_by_its_instance_id_when_its_member_id_is_not_known() -> None:
    """After a join whose answer was lost."""
    assert next_step(follow(answer_lost(NEW, Join("")), None)) == Leave("")


def test_it_steps_out_and_comes_back() -> None:
    """Wanted all the time, with another identity afterwards."""
    shadow = step_out(RAISED, is_out=True)
    assert next_step(shadow) == Leave("m-1")
    shadow = left(shadow)
    assert next_step(shadow) is None
    shadow = step_out(shadow, is_out=False)
    assert next_step(shadow) == Join("")
    assert identity_for(shadow, 5) is None


def test_it_comes_back_when_it_is_not_known_whether_it_has_left() -> None:
    """The answer to its leave was lost; it joins at once, and not when a heartbeat finds that it is not there."""
    shadow = answer_lost(step_out(RAISED, is_out=True), Leave("m-1"))
    shadow = step_out(shadow, is_out=False)
    assert next_step(shadow) == Join("m-1")
    assert identity_for(shadow, 5) is None


@pytest.mark.parametrize("error", [ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation])
@pytest.mark.parametrize("step", [Sync(FIRST), Heartbeat(FIRST)])
def test_upstream_rebalances(step: Step, error: ErrorCode) -> None:
    """It joins again, under its member id."""
    shadow = refused(RAISED, step, error)
    assert isinstance(shadow, Shadow)
    assert next_step(shadow) == Join("m-1")
    assert identity_for(shadow, 5) is None


@pytest.mark.parametrize("step", [Join("m-1"), Sync(FIRST), Heartbeat(FIRST)])
def test_it_was_removed_or_expired(step: Step) -> None:
    """It joins anew."""
    shadow = refused(RAISED, step, ErrorCode.unknown_member_id)
    assert isinstance(shadow, Shadow)
    assert next_step(shadow) == Join("")


@pytest.mark.parametrize("error", [ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id])
def test_it_leaves_where_it_is_no_more(error: ErrorCode) -> None:
    """It has left, whoever is there now."""
    shadow = refused(follow(RAISED, None), Leave("m-1"), error)
    assert isinstance(shadow, Shadow)
    assert next_step(shadow) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ErrorCode.fenced_instance_id, "another process"),
        (ErrorCode.group_id_not_found, "another type"),
        (ErrorCode.group_authorization_failed, "ACL Allow READ on this GROUP"),
        (ErrorCode.group_max_size_reached, "group.max.size"),
        (ErrorCode.invalid_request, "refuses"),
    ],
)
def test_refused_for_good(error: ErrorCode, words: str) -> None:
    """The reason is for people, with Kafka's name and number."""
    outcome = refused(RAISED, Join("m-1"), error)
    assert isinstance(outcome, Refused)
    assert words in outcome.reason
    assert f"{error.name.upper()} ({error.value})" in outcome.reason


def test_an_error_that_leaves_open_what_was_done_is_a_lost_answer() -> None:
    """Unlike those of a coordinator that has moved."""
    assert refused(RAISED, Join("m-1"), ErrorCode.not_coordinator) == RAISED
    unsure = refused(RAISED, Join("m-1"), ErrorCode.request_timed_out)
    assert isinstance(unsure, Shadow)
    assert unsure.where is Where.UNSURE


# ---- against a model of upstream ----------------------------------------------------------------------

Op = Literal["next", "gone", "reborn", "out", "back", "ok", "cut-before", "cut-after", "moved", "removed", "deleted"]
OPS: list[Op] = ["next", "gone", "reborn", "out", "back", "cut-before", "cut-after", "moved", "removed", "deleted"]


class Story(msgspec.Struct):
    """A shadow, its upstream, and which life and generation of our group each identity was told for."""

    shadow: Shadow
    upstream: Upstream
    life: int = 0
    generation_id: int = 1
    told: dict[Identity, tuple[int, int]] = {}

    def play(self, op: Op) -> None:
        match op:
            case "next":
                self.generation_id += 1
                self._follow()
            case "gone":
                self.shadow = follow(self.shadow, None)
            case "reborn":
                self.life, self.generation_id = self.life + 1, 1
                self.shadow = follow(self.shadow, None)
                self._follow()
            case "out" | "back":
                self.shadow = step_out(self.shadow, is_out=op == "out")
            case "removed":
                self.upstream.remove()
            case "deleted":
                self.upstream.delete()
            case "ok" | "cut-before" | "cut-after" | "moved":
                self._step(op)
        self._check()

    def _follow(self) -> None:
        self.shadow = follow(self.shadow, self.generation_id)

    def _step(self, op: Op) -> None:
        step = next_step(self.shadow, heartbeat_is_due=op != "ok")
        if step is None:
            return
        error = self.upstream.take(step) if op in {"ok", "cut-after"} else ErrorCode.not_coordinator
        if op.startswith("cut"):
            self.shadow = answer_lost(self.shadow, step)
        elif error is ErrorCode.none:
            self.shadow = self.upstream.answer(self.shadow, step)
        else:
            outcome = refused(self.shadow, step, error)
            assert isinstance(outcome, Shadow), f"nobody else is there, and yet {step} is {outcome}"
            self.shadow = outcome

    def _check(self) -> None:
        now = (self.life, self.generation_id)
        identity = identity_for(self.shadow, self.generation_id)
        if identity is None:
            return
        assert self.told.setdefault(identity, now) == now, "S1: an identity is told for one generation only"
        for earlier, generation in self.told.items():
            assert generation == now or not self.upstream.accepts_commit(earlier), f"S2: {generation} lands in {now}"


@given(ops=st.lists(st.sampled_from(OPS) | st.just("ok"), max_size=40))
def test_whatever_happens_no_commit_of_one_generation_lands_in_another(ops: list[Op]) -> None:
    """And when it calms down, the shadow is there and raised."""
    story = Story(shadow=Shadow(wanted=NOT_TOLD), upstream=Upstream())
    for op in ops:
        story.play(op)
    story.play("back")
    story.play("next")
    for _ in range(12):
        story.play("ok")
    assert next_step(story.shadow) is None
    identity = identity_for(story.shadow, story.generation_id)
    if story.upstream.member_id is not None:  # it was removed after its last answer; a heartbeat will find that
        assert identity is not None
        assert story.upstream.accepts_commit(identity)
