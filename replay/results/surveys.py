"""A first pass over a log for times that cannot be right (`history/wrong_times.py`), of all groups at once."""

from collections.abc import Mapping

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.window import WHOLE, Window
from muster.replay.history.wrong_times import ClockSurvey, Times
from muster.replay.logs.reading import Reading
from muster.replay.results.by_group import ByGroup


class _Surveyed:
    """A group of which the times are looked at."""

    def __init__(self, group_id: GroupId) -> None:
        self.group_id = group_id
        self.survey = ClockSurvey()
        self.waiting: list[StoredRecord] = []

    def take_waiting(self) -> None:
        """Take in the next records."""
        records, self.waiting = self.waiting, []
        self.survey.take(records)


async def survey_all(reading: Reading, wanted: str | None) -> Mapping[GroupId, Times]:
    """The times of the groups that match a pattern, as far as any of theirs is wrong. Raises as the log does."""
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
    """The times by which events are found in a window, of the groups that match; those that are wrong are said."""
    if window == WHOLE:
        return {}
    times = await survey_all(reading, wanted)
    reading.notes.extend(texts_of(times))
    return times


def texts_of(times: Mapping[GroupId, Times]) -> list[str]:
    """The sentences that people are given of a log: of the first group, and how many more there are."""
    for group_id, first in sorted(times.items()):
        more = f"; so of {len(times) - 1:,} more groups" if len(times) > 1 else ""
        return [f"{group_id}: {first.texts[0]}{more}"]
    return []


def _nothing(_record: StoredRecord) -> None:
    """Leave out what concerns whole partitions."""
