"""A first pass over a log to find the timestamps of all groups that cannot be right (`history/wrong_times.py`)."""

from collections.abc import Mapping

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.window import WHOLE, Window
from muster.replay.history.wrong_times import ClockSurvey, Times
from muster.replay.logs.reading import Reading
from muster.replay.results.by_group import ByGroup


class _Surveyed:
    """A group whose timestamps are checked."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.survey = ClockSurvey()
        self.waiting: list[StoredRecord] = []

    def take_waiting(self) -> None:
        """Process the waiting records."""
        records, self.waiting = self.waiting, []
        self.survey.take(records)


async def survey_all(reading: Reading, wanted: str | None) -> Mapping[GroupId, Times]:
    """Return the corrected times of the matching groups that have a wrong timestamp. Raises as the log does."""
    found: dict[GroupId, Times] = {}
    for partition in range(reading.log.partitions):
        by_group = ByGroup(wanted, lambda group_id, _: _Surveyed(group_id), _nothing)
        async for chunk in reading.chunks([partition]):
            by_group.take(chunk)
        for group in by_group.end():
            times = group.survey.times()
            if times.wrong:
                found[group.group_id] = times
    return found


async def times_in(reading: Reading, window: Window, wanted: str | None) -> Mapping[GroupId, Times]:
    """Return the times to look events up by, for a window and the matching groups. A note on wrong timestamps is added
    to `reading`.
    """
    if window == WHOLE:
        return {}
    times = await survey_all(reading, wanted)
    reading.notes.extend(texts_of(times))
    return times


def texts_of(times: Mapping[GroupId, Times]) -> list[str]:
    """Return the note for the user: about the first group, and the number of other groups."""
    for group_id, first in sorted(times.items()):
        more = f"; so of {len(times) - 1:,} more groups" if len(times) > 1 else ""
        return [f"{group_id}: {first.texts[0]}{more}"]
    return []


def _nothing(_record: StoredRecord) -> None:
    """Ignore records that concern whole partitions."""
