"""A member id that was handed out and not used, for which a join phase waited (KIP-394)."""

from collections.abc import Iterator

from muster.events.events import GroupEmptied, JoinPhaseCompleted
from muster.events.state import HandedOutId, HandedOutIdOutcome
from muster.replay.incidents.evidence.waiting import end_of_join_phase, held_ms, unused_ids
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.incident import Statement
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.rebalances.rebalance import MemberRef
from muster.replay.rebalances.wording import host, listed, plural
from muster.replay.times import duration, instant

KIND = Kind(
    "unused-id",
    "A client got a member id and did not join with it: the join phase waited for it. Recorded from format level 4 on.",
    "the holder of the id, by its client id and host",
)

_ENDS = {
    HandedOutIdOutcome.JOINED: "joined with it after all",
    HandedOutIdOutcome.LEFT: "left",
    HandedOutIdOutcome.TIMED_OUT: "never used it",
    HandedOutIdOutcome.REFUSED: "was refused when it came",
    HandedOutIdOutcome.STILL_OUT: "had not used it yet",
    HandedOutIdOutcome.UNKNOWN: "did what this version does not know",
}


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for rebalance in view.rebalances():
        phase, waited_ms = end_of_join_phase(rebalance, view.episode), held_ms(rebalance)
        if phase is None or waited_ms is None or not unused_ids(phase):
            continue
        event, holders = phase.event, unused_ids(phase)
        assert isinstance(event, JoinPhaseCompleted | GroupEmptied)
        more = f", and {event.handed_out_ids_more} more" if event.handed_out_ids_more else ""
        yield IncidentClaim(
            kind=KIND,
            acts=(),
            culprits=tuple(map(_ref, holders)),
            grade=Grade.RECORDED,
            headline=f"all waited {duration(waited_ms)} for {listed([_text(each) for each in holders])}{more}",
            chain=tuple(
                Statement(
                    text=f"the member id of {_holder(each)} was out for {duration(each.age_ms)} and not used",
                    grade=Grade.RECORDED,
                    at=instant(phase.at_ms),
                    seqs=(phase.seq,),
                )
                for each in holders
            ),
            advice=(f"{plural(len(holders), 'client')} asked to join and did not go on: look at what became of it",),
            held=(rebalance,),
        )


def _holder(each: HandedOutId) -> str:
    return f"'{each.client_id}' ({host(each.client_host)})"


def _text(each: HandedOutId) -> str:
    return f"{_holder(each)}, which had been given a member id {duration(each.age_ms)} before and {_ENDS[each.outcome]}"


def _ref(each: HandedOutId) -> MemberRef:
    return MemberRef(
        member_id=each.member_id, group_instance_id=None, client_id=each.client_id, client_host=each.client_host
    )
