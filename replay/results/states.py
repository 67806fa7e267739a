"""`muster replay state` without a group: the state of each group at a given time.

Records are skimmed, not decoded. Once a partition was read, the states of its groups are computed and kept packed until
they are shown, so memory holds the last records of one partition's groups, and one unpacked group.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from muster.events.ids import GroupId
from muster.events.records import StoredRecord
from muster.replay.history.items import Broken, Coordinated
from muster.replay.history.skim import Skim
from muster.replay.history.window import AtTime
from muster.replay.history.wording import missing_text
from muster.replay.history.wrong_times import AS_RECORDED, Times
from muster.replay.packed import Packed
from muster.replay.results.by_group import ByGroup
from muster.replay.results.group_tail import Partition
from muster.replay.results.state import StateAt, state_of
from muster.replay.text.times import instant


class StatesFold:
    """Processes the records of a log, one partition after another. `log`: its location.

    `wanted`: a glob pattern for group ids. `times`: see `surveys.py`.
    """

    def __init__(
        self, log: str, at: AtTime, wanted: str | None = None, times: Mapping[GroupId, Times] | None = None
    ) -> None:
        self._times = times or {}
        self._log = log
        self._at = at
        self._partition = -1
        self._by_group = ByGroup(wanted, self._made, self._note)
        self._states: list[tuple[GroupId, Packed[StateAt]]] = []
        self.unreadable: list[Broken] = []
        """The unreadable records that affect the states; complete once the states were requested."""
        self._home = self._of_partition()

    def _of_partition(self) -> Partition:
        return Partition(self.unreadable, until_ms=self._at.wall_ms)

    def take(self, records: Sequence[StoredRecord]) -> None:
        """Process the next records, all of one partition. Raises LogTooNew."""
        if records and records[0].partition != self._partition:
            self._end_partition()
            self._partition = records[0].partition
        self._by_group.take(records)

    def _made(self, group_id: GroupId, _partition: int) -> "_Group":
        times = self._times.get(group_id, AS_RECORDED)
        skim = Skim(self._home.prelude, until_ms=self._at.wall_ms, rebalances_kept=0, times=times)
        return _Group(group_id, skim, times)

    def _note(self, record: StoredRecord) -> None:
        self._home.note(record)

    def _end_partition(self) -> None:
        """Compute the states of the partition's groups: it has no further records."""
        asked_for = instant(self._at.wall_ms)
        for group in self._by_group.end():
            state = group.state(self.unreadable)
            if state is not None:
                told = msgspec.structs.replace(state, log=self._log, asked_for=asked_for)
                self._states.append((group.group_id, Packed(told)))
        self._home = self._of_partition()

    def states(self) -> Iterator[StateAt]:
        """Yield the groups of which anything can be read, sorted by name."""
        self._end_partition()
        self._states.sort(key=lambda state: state[0])
        for _, packed in self._states:
            yield packed.value


class _Group:
    """One group; the last record of each entity is kept."""

    def __init__(self, group_id: GroupId, skim: Skim, times: Times) -> None:
        self._times = times
        self.group_id = group_id
        self._skim = skim
        self.waiting: list[StoredRecord] = []
        """The next records, which have not been processed yet."""

    def take_waiting(self) -> None:
        """Process the waiting records."""
        records, self.waiting = self.waiting, []
        for _ in self._skim.transitions(records):
            pass

    def state(self, unreadable: list[Broken]) -> StateAt | None:
        """Return the state of the group, without the log's name; None if nothing of it can be read."""
        now = self._skim.now()
        group = now.group(self.group_id)
        broken = sorted((*self._skim.broken, *now.broken()), key=lambda each: each.position.offset)
        unreadable += broken
        if group is None:
            return None
        missing = self._skim.missing
        notes = [*self._times.texts, *([f"{missing} events before it are not in the log"] if missing else [])]
        notes += [missing_text(each) for each in broken]
        owners = [each.event.owner for each in now.prelude if isinstance(each, Coordinated)]
        return state_of(group, "", now.at_ms, owners[-1] if owners else None, notes)
