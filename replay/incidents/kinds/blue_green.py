"""A blue-green deployment: as many new processes joined as there were old ones, which left."""

from collections.abc import Iterator

from muster.replay.incidents.episode.acts import Came, Departure, Went
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.kinds.kind import EpisodeView, IncidentClaim, Kind
from muster.replay.incidents.windows import (
    BLUE_GREEN_MS,
    DEPLOYMENT_PROCESSES_MIN,
    REPLACED_MS,
)
from muster.replay.text.times import duration

KIND = Kind(
    "blue-green",
    "As many new processes joined as there were, and the old ones left.",
    "all of the new and of the old ones",
)


def find(view: EpisodeView) -> Iterator[IncidentClaim]:
    came = list(view.free(Came))
    went = [act for act in view.free(Went) if act.how is Departure.LEFT]
    if len(came) < DEPLOYMENT_PROCESSES_MIN or len(came) != len(went):
        return
    acts: list[Came | Went] = sorted([*came, *went], key=lambda act: act.seq)
    if acts[-1].at_ms - acts[0].at_ms > BLUE_GREEN_MS + REPLACED_MS:
        return
    first_went, last_came = went[0].at_ms, came[-1].at_ms
    before = view.episode.members_at(acts[0].at_ms)
    gone = {act.member.member_id for act in went}
    if gone & {act.member.member_id for act in came}:  # a new member left again, so this is not a replacement
        return
    if not before or not gone >= before or not (last_came <= first_went or went[-1].at_ms <= came[0].at_ms):
        return
    yield IncidentClaim(
        kind=KIND,
        acts=tuple(acts),
        culprits=tuple(act.member for act in acts),
        grade=Grade.INFERRED,
        headline=(
            f"{len(came)} new processes joined and the {len(went)} old ones left, within"
            f" {duration(acts[-1].at_ms - acts[0].at_ms)}"
        ),
    )
