"""The command `muster replay why`: chooses the incidents to read and those to show, and prints notes around them."""

from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing

import msgspec

from muster import terminal
from muster.events.ids import GroupId
from muster.replay.commands.asked import fail_outside, fail_unknown, start_of, times_of, when
from muster.replay.commands.opening import NOT_FOUND, Source, fail, opened, run
from muster.replay.form import Format, View
from muster.replay.history.window import WHOLE, At, AtSeq, Window, bounds
from muster.replay.incidents.incident import Incident
from muster.replay.incidents.windows import QUIET_MS
from muster.replay.logs.reading import Reading
from muster.replay.logs.sources import Start, find_start, from_the_beginning, items
from muster.replay.render import Detail, IncidentStream, incident_stream
from muster.replay.results.why import (
    NEWEST,
    Around,
    Every,
    IncidentChoice,
    NewestIncidents,
    OfGeneration,
    WhyFold,
    generation_of,
)
from muster.replay.text.printable import printable


class AskedIncidents(msgspec.Struct, frozen=True, kw_only=True):
    """The requested incidents: by default the newest few in text, all in JSON."""

    generation: int | None = None
    at: At | None = None
    last: bool = False
    everything: bool = False


def why(source: Source, group: str, view: View, asked: AskedIncidents, window: Window = WHOLE) -> None:
    """`muster replay why`."""

    async def read() -> None:
        async with opened(source) as reading:
            start = await _start(reading, GroupId(group), asked, window, view)
            fold = WhyFold(
                start.group_id, start.checkpoint, window=window, at=asked.at, life=start.life, times=start.times
            )
            choice = _choice(asked, fold, view.form)
            stream = incident_stream(start.group_id, reading.log.location, bounds(window), view, terminal.stdout())
            shown = _Shown(stream, asked, choice)
            is_known, is_told = start.last is not None, start.is_reached
            async for told in _told(reading, start, fold):
                is_known = True
                for incident in told:
                    is_told = True
                    shown.feed(choice.take(incident))
                if isinstance(choice, Around) and choice.has_after:
                    break
            if not is_known:
                await fail_unknown(reading, group)
            if not fold.has_begun or not is_told:
                await fail_outside(reading, start, _asked_for(asked, window), view)
            if isinstance(choice, OfGeneration) and not shown.count:
                fail(_no_generation(group, choice, reading), NOT_FOUND)
            _end(choice, shown, f"{printable(group)}{when(_asked_for(asked, window), view)}")

    run(read())


class _Shown:
    """Prints incidents: the first in full; in a list, the others with only the most important facts."""

    def __init__(self, stream: IncidentStream, asked: AskedIncidents, choice: IncidentChoice) -> None:
        self.stream = stream
        self.count = 0
        self._asked = asked
        self._is_list = isinstance(choice, NewestIncidents)

    def feed(self, incidents: Iterable[Incident]) -> None:
        for incident in incidents:
            detail = Detail.BRIEF if self._is_list and self.count else Detail.WHOLE
            wanted = self._asked.generation
            whole = [] if wanted is None else [each for each in incident.rebalances if generation_of(each) == wanted]
            self.stream.feed(incident, detail, whole)
            self.count += 1


async def _start(reading: Reading, group_id: GroupId, asked: AskedIncidents, window: Window, view: View) -> Start:
    """Find the record to begin at, so that the first incident that may be shown is complete."""
    if asked.last:
        return await find_start(reading, group_id, None, quiet_ms=QUIET_MS, rebalances=2)
    if isinstance(asked.at, AtSeq):  # the incarnation that it belongs to is known only at the end
        start = await start_of(reading, group_id, Window(since=asked.at, until=asked.at), view)
        return msgspec.structs.replace(start, checkpoint=from_the_beginning(group_id).checkpoint)
    start = await start_of(reading, group_id, window, view, quiet_ms=QUIET_MS, may_go_on=True)
    if asked.at is None:
        return start
    times = await times_of(reading, group_id, asked.at)
    reading.notes.extend(times.texts)
    return msgspec.structs.replace(start, times=times)


def _choice(asked: AskedIncidents, fold: WhyFold, form: Format) -> IncidentChoice:
    if asked.at is not None:
        return Around(fold)
    if asked.generation is not None:
        return OfGeneration(asked.generation)
    if asked.last:
        return NewestIncidents(1)
    return Every() if asked.everything or form in (Format.JSON, Format.JSONL) else NewestIncidents(NEWEST)


async def _told(reading: Reading, start: Start, fold: WhyFold) -> AsyncIterator[Iterable[Incident]]:
    """Yield the incidents that end with each item of the group, and finally the remaining ones."""
    has_any = False
    reads = items(reading, start)
    async with aclosing(reads):
        async for item in reads:
            has_any = True
            yield fold.feed(item)
            if fold.is_over:
                break
    if has_any:
        yield fold.end()


def _end(choice: IncidentChoice, shown: _Shown, what: str) -> None:
    """Show the remaining incidents, and notes on the choice. `what`: the group, and the requested time."""
    left = list(choice.end())
    if isinstance(choice, Around) and choice.nearest:
        shown.stream.note(f"There was no incident of {what}. The nearest {choice.nearest}:")
    shown.feed(left)
    if not shown.count:
        shown.stream.note(f"The log has no incident of {what}.")
    elif isinstance(choice, NewestIncidents) and choice.older:
        shown.stream.note(f"... and {choice.older} older: --all")
    shown.stream.end()


def _asked_for(asked: AskedIncidents, window: Window) -> Window:
    return window if asked.at is None else Window(since=asked.at, until=asked.at)


def _no_generation(group: str, choice: OfGeneration, reading: Reading) -> str:
    if choice.known is None:
        there = "it has no rebalance"
    else:
        least, greatest = choice.known
        there = f"it has only generation {least}" if least == greatest else f"it has generations {least} to {greatest}"
    if choice.running is not None:
        there += f"; the rebalance to generation {choice.running} is still running"
    asked = f"no rebalance of {printable(group)} led to generation {choice.generation} in {reading.log.location}"
    return f"{asked}; {there}"
