"""A handed-out member id that was not used, for which a join phase waited (KIP-394)."""

from collections.abc import Iterator

import msgspec

from muster.events.events import GroupEmptied, JoinPhaseCompleted
from muster.events.ids import MemberId
from muster.events.state import HandedOutId, HandedOutIdOutcome
from muster.replay.incidents.episode.acts import Phase
from muster.replay.incidents.evidence.waiting import end_of_join_phase, held_ms, unused_ids
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.runs import runs
from muster.replay.rebalances.rebalance import MemberRef, Rebalance
from muster.replay.rebalances.wording import host
from muster.replay.text.grammar import listed, plural
from muster.replay.text.times import duration, instant

KIND = Kind(
    "unused-id",
    "A client got a member id and did not join with it: the join phase waited for it. Recorded from format level 4 on.",
    "the holder of the id, by its client id and host",
)

_ENDS = {
    HandedOutIdOutcome.JOINED: "joined with it after all",
    HandedOutIdOutcome.LEFT: "left",
    HandedOutIdOutcome.TIMED_OUT: "never used it",
    HandedOutIdOutcome.REFUSED: "was refused when it joined",
    HandedOutIdOutcome.STILL_OUT: "had not used it yet",
    HandedOutIdOutcome.UNKNOWN: "had an outcome that this version does not know",
}


class _Wait(msgspec.Struct, frozen=True):
    """A join phase that waited for handed-out ids."""

    rebalance: Rebalance
    waited_ms: int
    end: Phase
    holders: list[HandedOutId]

    @property
    def ids(self) -> set[MemberId]:
        return {each.member_id for each in self.holders}


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    """Find such waits; consecutive phases that waited for the same id (a cooperative assignor's rounds) are one."""
    for run in runs(list(_waits(view)), lambda run, wait: bool(run[-1].ids & wait.ids)):
        holders = {each.member_id: each for wait in run for each in wait.holders}.values()
        waited_ms = sum(wait.waited_ms for wait in run)
        more = max(_more(wait.end) for wait in run)
        others = f", and {more} more" if more else ""
        yield IncidentClaim(
            kind=KIND,
            acts=(),
            culprits=tuple(map(_ref, holders)),
            grade=Grade.RECORDED,
            headline=f"all waited {duration(waited_ms)} for {listed([_text(each) for each in holders])}{others}",
            chain=tuple(
                Statement(
                    text=f"the member id of {_holder(each)} was given out {duration(each.age_ms)} before and not used",
                    grade=Grade.RECORDED,
                    at=instant(wait.end.at_ms),
                    seqs=(wait.end.seq,),
                )
                for wait in run
                for each in wait.holders
            ),
            advice=(
                f"{plural(len(holders), 'client')} started to join and did not finish: find out what happened to it",
            ),
            held=tuple(wait.rebalance for wait in run),
        )


def _waits(view: EpisodeView) -> Iterator[_Wait]:
    for rebalance in view.rebalances():
        end, waited_ms = end_of_join_phase(rebalance, view.episode), held_ms(rebalance)
        if end is not None and waited_ms is not None and unused_ids(end):
            yield _Wait(rebalance, waited_ms, end, unused_ids(end))


def _more(end: Phase) -> int:
    """Return how many handed-out ids the event counts but does not list."""
    assert isinstance(end.event, JoinPhaseCompleted | GroupEmptied)
    return end.event.handed_out_ids_more


def _holder(each: HandedOutId) -> str:
    return f"'{each.client_id}' ({host(each.client_host)})"


def _text(each: HandedOutId) -> str:
    return f"{_holder(each)}, which had been given a member id {duration(each.age_ms)} before and {_ENDS[each.outcome]}"


def _ref(each: HandedOutId) -> MemberRef:
    return MemberRef(
        member_id=each.member_id, group_instance_id=None, client_id=each.client_id, client_host=each.client_host
    )
