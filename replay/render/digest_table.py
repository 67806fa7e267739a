"""The digest: as Markdown for a chat, or as text for a terminal."""

from collections.abc import Iterator

from rich.console import Console

from muster.replay.incidents.incident import Incident
from muster.replay.render.incident_table import Detail, cost_text, print_incident, title_of
from muster.replay.render.markdown import escaped
from muster.replay.render.time_words import when_text
from muster.replay.results.digest import Digest, ListedIncident
from muster.replay.results.storms import Storm, StormKind
from muster.replay.text.grammar import few, plural
from muster.replay.text.printable import text
from muster.replay.text.times import moment_of

_GROUPS_NAMED = 5


def print_digest(digest: Digest, console: Console) -> None:
    """Print the counts, the storms, then the incidents with the highest cost."""
    console.print(text(_answer(digest), "bold"))
    for storm in digest.storms:
        console.print()
        console.print(text(f"{moment_of(storm.started_at)}, ", "dim").append(text("storm", "bold magenta")))
        console.print(text(storm_text(storm), "bold"))
    for incident in digest.incidents:
        console.print()
        console.print(text(incident.group_id, "bold cyan"))
        print_incident(incident, console, Detail.BRIEF)
    for incident in digest.unserved:
        console.print()
        console.print(text(incident.group_id, "bold cyan"))
        print_incident(incident, console, Detail.BRIEF)
    if digest.listed:
        console.print()
    for listed in digest.listed:
        console.print(text(listed_text(listed)))
    for line in _rest(digest):
        console.print()
        console.print(text(line, "dim"))


def digest_in_markdown(digest: Digest) -> str:
    """Return the same as Markdown lists."""
    told = f"**{escaped(_answer(digest))}**\n"
    if digest.storms:
        told += "\n## Storms\n\n"
        told += "".join(
            f"* {escaped(moment_of(each.started_at))}: {escaped(storm_text(each))}\n" for each in digest.storms
        )
    if digest.incidents:
        told += "\n## What cost most\n\n" + "".join(map(_incident, digest.incidents))
    if digest.unserved:
        told += "\n## Consumers without partitions\n\n" + "".join(map(_incident, digest.unserved))
    if digest.listed:
        told += "\n## The others\n\n" + "".join(f"* {escaped(listed_text(each))}\n" for each in digest.listed)
    return told + "".join(f"\n{escaped(line)}\n" for line in _rest(digest))


def _incident(incident: Incident) -> str:
    lines = [escaped(cost_text(incident.cost)), *map(escaped, incident.advice), *map(escaped, incident.notes)]
    head = f"* **{escaped(incident.group_id)}**, {escaped(title_of(incident))}: {escaped(incident.headline)}\n"
    return head + "".join(f"  * {line}\n" for line in lines if line)


def _answer(digest: Digest) -> str:
    """'3 incidents in 2 of 14 groups from .. to ..; 12 groups were quiet'."""
    loud = digest.groups - digest.quiet
    told = f"{plural(digest.told, 'incident')} in {loud} of {plural(digest.groups, 'group')}{when_text(digest.window)}"
    return f"{told}; {digest.quiet} {'was' if digest.quiet == 1 else 'were'} quiet"


def storm_text(storm: Storm) -> str:
    """Describe a storm in one sentence."""
    groups = few([f"'{each}'" for each in storm.groups], _GROUPS_NAMED)
    of = f"{plural(len(storm.groups), 'group')} ({groups})"
    if storm.kind is StormKind.COORDINATOR:
        again = f" {storm.times} times" if storm.times > 1 else ""
        what = f"the coordinator was unavailable{again}: {of} were affected by it"
    else:
        what = f"processes at {storm.client_host} were in trouble in {of} at the same time"
    end = "it is still in progress" if storm.ended_at is None else f"it ended at {moment_of(storm.ended_at)}"
    return f"{what}, with {plural(storm.rebalances, 'rebalance')}; {end}"


def listed_text(incident: ListedIncident) -> str:
    """'2026-11-21 02:13:30.185 UTC, orders: scale-up (recorded): a new process joined: ...'."""
    kind = f"{incident.kind} ({incident.grade})"
    return f"{moment_of(incident.started_at)}, {incident.group_id}: {kind}: {incident.headline}"


def _rest(digest: Digest) -> Iterator[str]:
    if digest.ended_at is not None:
        yield f"the log has no events in that time: its last event is from {moment_of(digest.ended_at)}"
    if digest.more:
        yield f"... and {digest.more} more, which cost no more than these"
    if digest.without_rebalance:
        yield f"{plural(digest.without_rebalance, 'incident')} had no rebalance"
    if digest.kinds:
        yield f"kinds: {', '.join(f'{kind} {times}' for kind, times in digest.kinds.items())}"
