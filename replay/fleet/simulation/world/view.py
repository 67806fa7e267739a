"""The group as the simulated world sees it: the rebalances, from the group's state before and after each command.

A rebalance begins when the group enters the join phase, and ends when it is Stable or Empty, or with the next join
phase. Each rebalance is attributed to a story: that of the process (or administrator) whose request or silence started
it. If a dead or slow process delayed the join phase, or a dead or slow leader the sync phase, it is that process's
story instead. If the group became empty, it is the story that emptied it, unless the group was meant to end. A
rebalance that no story explains is an error in the scenario.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from muster.coordinator.group.commands import AnyCommand, JoinGroup
from muster.events.state import GroupState
from muster.replay.fleet.simulation.world.rules import Rules
from muster.replay.fleet.simulation.world.truth import SeenRebalance, Story

if TYPE_CHECKING:
    from muster.replay.fleet.simulation.world.process import Process

HELD_MS: Final = 5_000
"""A process delayed a phase if the phase waited for it alone for longer than this, and for over half of its length."""

SURELY_NOT_HELD_MS: Final = 1_000
"""If the delay is between the two limits, the rebalance may be attributed either way."""

COMING: Final = frozenset({"scale-up", "start"})
"""A new process is not to blame for a phase that waited for a dead one. For two crashes, or a crash during a
replacement, docs/incidents.md leaves open whether the rebalance counts for the process that began it or for the one it
waited for.
"""

ORDERLY: Final = frozenset({"scale-down", "shutdown", "group-deleted", "group-expired"})
"""The stories after which a group is intentionally empty."""

Seen = tuple[int, GroupState, int]
"""Incarnation, state, generation."""


class WorldView:
    """The view of one group; see the module."""

    def __init__(self, rules: Rules) -> None:
        self.rebalances: list[SeenRebalance] = []
        self._rules = rules
        self._current: SeenRebalance | None = None

    def seen(self) -> Seen:
        group = self._rules.group
        if group is None:
            return 0, GroupState.EMPTY, 0
        return group.incarnation, group.state, group.generation_id

    def size(self) -> int:
        """The number of members."""
        return 0 if self._rules.group is None else len(self._rules.group.members)

    def watch(
        self,
        before: Seen,
        size_before: int,
        command: AnyCommand | None,
        story: Story | None,
        subjects: "Sequence[Process]",
    ) -> None:
        """Note the change from `before` to the current state, caused by a command of the processes `subjects`."""
        incarnation, state, generation_id = after = self.seen()
        if self._current is not None and before[1] is GroupState.COMPLETING_REBALANCE and after != before:
            self._judge_sync_phase(self._current, subjects)
        if after != before:
            is_next = incarnation == before[0] and generation_id > before[2]
            preparing = GroupState.PREPARING_REBALANCE
            if before[1] is not preparing and (state is preparing or is_next):
                self._begin(story, incarnation, from_empty=before[1] is GroupState.EMPTY)
        else:
            is_next = False
        if self._current is None:
            return
        if isinstance(command, JoinGroup):
            self._current.arrivals.append((self._rules.now_ms, subjects[0].name))
        if self.size() != size_before and story is not None:
            self._fold(self._current, story)
        if is_next:
            self._current.to_generation = generation_id
            self._current.joined_ms = self._rules.now_ms
            self._current.leader = self._leader_name()
            self._judge_join_phase(self._current, subjects)
        if state is GroupState.EMPTY and story not in (None, self._current.story) and story.kind not in ORDERLY:
            _hand_over(self._current, story)
        if state in (GroupState.STABLE, GroupState.EMPTY):
            self._end()

    def _judge_sync_phase(self, rebalance: SeenRebalance, subjects: "Sequence[Process]") -> None:
        """If the leader was slow to send the assignment, or died before it did, attribute the rebalance to the leader's
        story, or to both.
        """
        leader = next((each for each in subjects if each.member_id == rebalance.leader), None)
        if leader is None or leader.story is rebalance.story or (leader.alive and not leader.story.holds_phases):
            return
        held_ms = self._rules.now_ms - rebalance.joined_ms
        is_held = held_ms > HELD_MS and (leader.alive or held_ms > rebalance.joined_ms - rebalance.began[0])
        self._judge_held(rebalance, leader.story, held_ms, is_held=is_held)

    def _leader_name(self) -> str | None:
        group = self._rules.group
        return None if group is None or group.leader_id is None else group.leader_id

    def _begin(self, story: Story | None, incarnation: int, *, from_empty: bool) -> None:
        assert story is not None, "a rebalance that nobody explains"
        self._end()
        began = self._rules.now_ms, self._rules.wall_ms
        self._current = SeenRebalance(began, incarnation, story, from_empty=from_empty)
        self.rebalances.append(self._current)
        story.must.append(self._current)

    def _end(self) -> None:
        if self._current is not None:
            self._current.ended = self._rules.now_ms, self._rules.wall_ms
        self._current = None

    @staticmethod
    def _fold(rebalance: SeenRebalance, story: Story) -> None:
        """Note a rebalance in which members of another story joined or left: it may be reported with either."""
        if rebalance not in story.must and rebalance not in story.may:
            story.may.append(rebalance)

    def _judge_join_phase(self, rebalance: SeenRebalance, last: "Sequence[Process]") -> None:
        """Check whether the phase waited for one of `last` alone, and if so attribute the rebalance to it, or to
        both."""
        holder = next((each for each in last if each.story is not rebalance.story), None)
        if holder is None or rebalance.from_empty or (holder.alive and not holder.story.holds_phases):
            return
        names = {each.name for each in last}
        others = (at_ms for at_ms, name in rebalance.arrivals if name not in names)
        held_ms = self._rules.now_ms - max(rebalance.began[0], *others, 0)
        is_held = held_ms > HELD_MS and held_ms > (self._rules.now_ms - rebalance.began[0]) / 2
        self._judge_held(rebalance, holder.story, held_ms, is_held=is_held)

    def _judge_held(self, rebalance: SeenRebalance, holder: Story, held_ms: int, *, is_held: bool) -> None:
        """Attribute the rebalance to the story of the process that a phase of it waited for, or to both."""
        if held_ms <= SURELY_NOT_HELD_MS:
            return
        if is_held and (rebalance.story.kind in COMING or holder.holds_phases):
            _hand_over(rebalance, holder)
        else:
            if rebalance in rebalance.story.must:  # else its join phase was delayed, too
                rebalance.story.must.remove(rebalance)
            for each in (rebalance.story, holder):
                self._fold(rebalance, each)


def _hand_over(rebalance: SeenRebalance, story: Story) -> None:
    """Move the rebalance to another story. It may still be reported with the one that began it, or not at all."""
    began = rebalance.story
    if rebalance in began.must:  # else a third process delayed its join phase for a while
        began.must.remove(rebalance)
        began.may.append(rebalance)
    if rebalance in story.may:
        story.may.remove(rebalance)
    began.is_optional = began.is_optional or (began.kind == "scale-up" and not began.must)
    rebalance.story = story
    story.must.append(rebalance)
