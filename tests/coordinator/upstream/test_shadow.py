"""One shadow: its next request, the effect of responses, and no commit of one generation gets into another."""

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from muster.coordinator.upstream.shadow import (
    UNKNOWN_GENERATION,
    Action,
    CommitIdentity,
    Join,
    Leave,
    Shadow,
    ShadowHeartbeat,
    ShadowRefused,
    ShadowState,
    Sync,
    commit_identity,
    is_bumped,
    next_action,
    on_answer_lost,
    on_error,
    on_joined,
    on_left,
    on_synced,
    want,
    withdraw,
)
from tests.coordinator.upstream.model import INSTANCE_ID, Upstream

FIRST = CommitIdentity(member_id="m-1", generation_id=1, group_instance_id=INSTANCE_ID)
SECOND = CommitIdentity(member_id="m-1", generation_id=2, group_instance_id=INSTANCE_ID)
REPLACED = CommitIdentity(member_id="m-2", generation_id=1, group_instance_id=INSTANCE_ID)
NEW = Shadow(wanted=UNKNOWN_GENERATION)
BUMPED = want(on_synced(on_joined(NEW, FIRST)), 5)


def test_a_new_shadow_joins_syncs_and_rests() -> None:
    """Join without a member id, Sync, then only heartbeats."""
    assert next_action(NEW) == Join("")
    shadow = on_joined(NEW, FIRST)
    assert next_action(shadow) == Sync(FIRST)
    shadow = on_synced(shadow)
    assert next_action(shadow) is None
    assert next_action(shadow, heartbeat_is_due=True) == ShadowHeartbeat(FIRST)


def test_the_first_generation_needs_no_bump() -> None:
    """S4: an unused identity is used for the first generation that comes."""
    assert next_action(BUMPED) is None
    assert commit_identity(BUMPED, 5) == FIRST


def test_an_identity_is_used_by_a_known_generation() -> None:
    """Before that it may still become the first one's."""
    synced = on_synced(on_joined(NEW, FIRST))
    assert want(synced, UNKNOWN_GENERATION).last_used is None
    assert want(synced, 5).last_used == FIRST


def test_no_identity_before_the_sync() -> None:
    """Until then the broker answers commits with 27."""
    shadow = on_joined(want(NEW, 5), FIRST)
    assert commit_identity(shadow, 5) is None
    assert not is_bumped(shadow, 5)
    assert commit_identity(on_synced(shadow), 5) == FIRST


def test_another_generation_is_a_join_of_the_leader() -> None:
    """The old generation keeps its identity until then, and has none from then on."""
    shadow = want(BUMPED, 6)
    assert next_action(shadow) == Join("m-1")
    assert commit_identity(shadow, 5) == FIRST
    shadow = on_joined(shadow, SECOND)
    assert (commit_identity(shadow, 5), commit_identity(shadow, 6)) == (None, None)
    shadow = on_synced(shadow)
    assert (commit_identity(shadow, 5), commit_identity(shadow, 6)) == (None, SECOND)
    assert is_bumped(shadow, 5)
    assert not is_bumped(shadow, 7)


def test_of_several_bumps_the_newest_counts() -> None:
    """One in flight completes all that were requested meanwhile."""
    shadow = want(on_joined(want(BUMPED, 6), SECOND), 9)
    shadow = on_synced(shadow)
    assert next_action(shadow) is None
    assert commit_identity(shadow, 9) == SECOND


def test_the_same_generation_is_no_bump() -> None:
    """The partition reports each change of a group."""
    assert next_action(want(BUMPED, 5)) is None


def test_a_lost_join_is_repeated() -> None:
    """S3: a replaced member keeps the generation; if that was used already it has to grow."""
    shadow = on_answer_lost(want(BUMPED, 6), Join("m-1"))
    assert shadow.state is ShadowState.UNSURE
    assert next_action(shadow) == Join("")
    shadow = on_synced(on_joined(shadow, REPLACED))
    assert next_action(shadow) == Join("m-2")
    assert commit_identity(shadow, 6) is None


def test_a_retaken_shadow_is_right_at_once() -> None:
    """Commits with a former process's identity are refused for their member id."""
    shadow = Shadow(wanted=7, state=ShadowState.UNSURE)
    assert next_action(shadow) == Join("")
    shadow = on_synced(on_joined(shadow, REPLACED))
    assert next_action(shadow) is None
    assert commit_identity(shadow, 7) == REPLACED


def test_an_unwanted_shadow_leaves() -> None:
    """It leaves, and reports nothing from then on."""
    shadow = want(BUMPED, None)
    assert next_action(shadow) == Leave("m-1")
    assert commit_identity(shadow, 5) is None
    assert next_action(on_left(shadow)) is None


def test_a_group_of_the_same_name_is_bumped_even_for_the_same_number() -> None:
    """The former group's generation says nothing about the next one."""
    shadow = want(want(BUMPED, None), 5)
    assert commit_identity(shadow, 5) is None
    assert next_action(shadow) == Join("m-1")


def test_it_leaves_by_its_instance_id_when_its_member_id_is_not_known() -> None:
    """After a join whose response was lost."""
    assert next_action(want(on_answer_lost(NEW, Join("")), None)) == Leave("")


def test_it_steps_out_and_rejoins() -> None:
    """It stays wanted, and has another identity afterwards."""
    shadow = withdraw(BUMPED, is_withdrawn=True)
    assert next_action(shadow) == Leave("m-1")
    shadow = on_left(shadow)
    assert next_action(shadow) is None
    shadow = withdraw(shadow, is_withdrawn=False)
    assert next_action(shadow) == Join("")
    assert commit_identity(shadow, 5) is None


def test_it_rejoins_if_it_may_not_have_left() -> None:
    """The response to its leave was lost; it joins at once, rather than when a heartbeat fails."""
    shadow = on_answer_lost(withdraw(BUMPED, is_withdrawn=True), Leave("m-1"))
    shadow = withdraw(shadow, is_withdrawn=False)
    assert next_action(shadow) == Join("m-1")
    assert commit_identity(shadow, 5) is None


@pytest.mark.parametrize("error", [ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation])
@pytest.mark.parametrize("action", [Sync(FIRST), ShadowHeartbeat(FIRST)])
def test_upstream_rebalances(action: Action, error: ErrorCode) -> None:
    """It rejoins, with its member id."""
    shadow = on_error(BUMPED, action, error)
    assert isinstance(shadow, Shadow)
    assert next_action(shadow) == Join("m-1")
    assert commit_identity(shadow, 5) is None


@pytest.mark.parametrize("action", [Join("m-1"), Sync(FIRST), ShadowHeartbeat(FIRST)])
def test_it_was_removed_or_expired(action: Action) -> None:
    """It joins as a new member."""
    shadow = on_error(BUMPED, action, ErrorCode.unknown_member_id)
    assert isinstance(shadow, Shadow)
    assert next_action(shadow) == Join("")


@pytest.mark.parametrize("error", [ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id])
def test_a_shadow_that_is_no_longer_a_member_counts_as_left(error: ErrorCode) -> None:
    """It counts as left, whatever other members are there."""
    shadow = on_error(want(BUMPED, None), Leave("m-1"), error)
    assert isinstance(shadow, Shadow)
    assert next_action(shadow) is None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ErrorCode.fenced_instance_id, "another muster serve with this event log"),
        (ErrorCode.group_id_not_found, "another type"),
        (ErrorCode.group_authorization_failed, "ACL Allow READ on this GROUP"),
        (ErrorCode.group_max_size_reached, "group.max.size"),
        (ErrorCode.invalid_request, "refuses"),
    ],
)
def test_a_permanent_refusal(error: ErrorCode, words: str) -> None:
    """The reason is readable, with Kafka's name and number of the error."""
    outcome = on_error(BUMPED, Join("m-1"), error)
    assert isinstance(outcome, ShadowRefused)
    assert words in outcome.reason
    assert f"{error.name.upper()} ({error.value})" in outcome.reason


def test_an_error_that_leaves_open_what_was_done_is_a_lost_answer() -> None:
    """Unlike those of a coordinator that has moved."""
    assert on_error(BUMPED, Join("m-1"), ErrorCode.not_coordinator) == BUMPED
    unsure = on_error(BUMPED, Join("m-1"), ErrorCode.request_timed_out)
    assert isinstance(unsure, Shadow)
    assert unsure.state is ShadowState.UNSURE


# ---- against a model of upstream ----------------------------------------------------------------------

Op = Literal["next", "gone", "reborn", "out", "back", "ok", "cut-before", "cut-after", "moved", "removed", "deleted"]
OPS: list[Op] = ["next", "gone", "reborn", "out", "back", "cut-before", "cut-after", "moved", "removed", "deleted"]


class Story(msgspec.Struct):
    """A shadow, its upstream, and the incarnation and generation of our group that each identity was used for."""

    shadow: Shadow
    upstream: Upstream
    life: int = 0
    generation_id: int = 1
    used: dict[CommitIdentity, tuple[int, int]] = {}

    def play(self, op: Op) -> None:
        match op:
            case "next":
                self.generation_id += 1
                self._want()
            case "gone":
                self.shadow = want(self.shadow, None)
            case "reborn":
                self.life, self.generation_id = self.life + 1, 1
                self.shadow = want(self.shadow, None)
                self._want()
            case "out" | "back":
                self.shadow = withdraw(self.shadow, is_withdrawn=op == "out")
            case "removed":
                self.upstream.remove()
            case "deleted":
                self.upstream.delete()
            case "ok" | "cut-before" | "cut-after" | "moved":
                self._send(op)
        self._check()

    def _want(self) -> None:
        self.shadow = want(self.shadow, self.generation_id)

    def _send(self, op: Op) -> None:
        action = next_action(self.shadow, heartbeat_is_due=op != "ok")
        if action is None:
            return
        error = self.upstream.take(action) if op in {"ok", "cut-after"} else ErrorCode.not_coordinator
        if op.startswith("cut"):
            self.shadow = on_answer_lost(self.shadow, action)
        elif error is ErrorCode.none:
            self.shadow = self.upstream.answer(self.shadow, action)
        else:
            outcome = on_error(self.shadow, action, error)
            assert isinstance(outcome, Shadow), f"nobody else is there, and yet {action} is {outcome}"
            self.shadow = outcome

    def _check(self) -> None:
        now = (self.life, self.generation_id)
        identity = commit_identity(self.shadow, self.generation_id)
        if identity is None:
            return
        assert self.used.setdefault(identity, now) == now, "S1: an identity is used for one generation only"
        for earlier, generation in self.used.items():
            assert generation == now or not self.upstream.accepts_commit(earlier), f"S2: {generation} lands in {now}"


@given(ops=st.lists(st.sampled_from(OPS) | st.just("ok"), max_size=40))
def test_whatever_happens_no_commit_of_one_generation_lands_in_another(ops: list[Op]) -> None:
    """In the end, the shadow is there and bumped."""
    story = Story(shadow=Shadow(wanted=UNKNOWN_GENERATION), upstream=Upstream())
    for op in ops:
        story.play(op)
    story.play("back")
    story.play("next")
    for _ in range(12):
        story.play("ok")
    assert next_action(story.shadow) is None
    identity = commit_identity(story.shadow, story.generation_id)
    if story.upstream.member_id is not None:  # it was removed after its last response; a heartbeat will find that
        assert identity is not None
        assert story.upstream.accepts_commit(identity)
