"""Processes that left and were not replaced."""

from collections.abc import Iterator, Sequence

from muster.replay.incidents.episode.acts import Departure, Went
from muster.replay.incidents.evidence.naming import processes
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.kinds.scaling import changes_of_size, span_text
from muster.replay.rebalances.wording import clients_say, is_close, says_something

DOWN = Kind("scale-down", "Processes left cleanly, and none replaced them.", "the processes that left")
SHUTDOWN = Kind("shutdown", "All processes left cleanly, and the group was empty.", "all processes")


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    for run in changes_of_size([act for act in view.free(Went) if act.how is Departure.LEFT]):
        members = tuple(act.member for act in run)
        gone = {member.member_id for member in members}
        emptied = view.episode.members_at(run[-1].at_ms) <= gone  # no member remained after the last one left
        count = "a process" if len(run) == 1 else f"{len(run)} processes"
        yield IncidentClaim(
            kind=SHUTDOWN if emptied else DOWN,
            acts=tuple(run),
            culprits=members,
            grade=Grade.RECORDED,
            headline=(
                f"{count} left{span_text(run)}{', the group was empty' if emptied else ''}: {processes(members)}"
                f"{_reason(run)}"
            ),
        )


def _reason(run: Sequence[Went]) -> str:
    """Return the clients' own reasons, if these say more than that the client was closed."""
    reasons = [act.why.client_reason for act in run]
    own = [each for each in reasons if says_something(each) and not is_close(each)]
    return f"; {clients_say(own)}" if own else ""
