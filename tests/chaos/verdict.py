"""The invariants, over the log and the responses that clients received. Violations name their numbers.

1. No partition is assigned to two members of one generation, as far as members know. A static member that has
   restarted is the same one.
2. Each accepted commit is stored, and none of an older generation follows it.
3. What a member was sent is in the log: who leads which generation, its assignment.
4. No member is evicted for silence within a session after sending a heartbeat that was accepted.
5. The log is one history: `muster replay verify` finds nothing, and every record can be read.
6. A deposed owner accepts nothing: a heartbeat sent after the end of its generation or membership does not succeed.
7. After the fault all clients are served again, within a limit (the run itself checks that).

Pure; does not know which fault there was.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from muster.events.causes import Cause
from muster.events.consumer_protocol import assigned_partitions
from muster.events.events import Event, GroupEvent, MemberEvent, MemberRemoved, StaticMemberReplaced
from tests.chaos.evidence import LogRead, Recorded, StoredCommit
from tests.chaos.ledger import ClientReply, CommitReply, Entry, HeartbeatReply, JoinReply, LibraryCommit, SyncReply

ROUNDED_MS = 2
"""Wall clocks of two processes of one machine, in whole ms."""

_Group = str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that does not hold. `place`: where the log has it."""

    number: int
    text: str
    place: str = ""

    def __str__(self) -> str:
        return f"{self.number}: {self.text}" + (f" ({self.place})" if self.place else "")


def violations(
    entries: Sequence[Entry],
    log: LogRead,
    commits: Sequence[StoredCommit],
    findings: Iterable[str],
    sessions_ms: Mapping[_Group, int],
) -> list[Violation]:
    """Return all violations. `sessions_ms`: of each group whose members put their generation into commits. `commits`:
    all stored ones, each partition's in order; `findings`: of `muster replay verify`.
    """
    return [
        *_shared_partitions(entries),
        *_lost_commits(entries, commits),
        *_overwritten_commits(commits, sessions_ms),
        *_not_recorded(entries, log.events),
        *_evicted(entries, log.events, sessions_ms),
        *(Violation(number=5, text=text) for text in (*findings, *log.broken)),
        *_deposed_answers(entries, log.events),
    ]


def _shared_partitions(entries: Iterable[Entry]) -> Iterator[Violation]:
    holders: dict[tuple[_Group, int, str, int], SyncReply] = {}
    for answer in entries:
        if not isinstance(answer, SyncReply):
            continue
        for topic, partition in assigned_partitions(answer.assignment) or ():
            key = answer.group_id, answer.generation_id, topic, partition
            first = holders.setdefault(key, answer)
            if (first.instance or first.member_id) != (answer.instance or answer.member_id):
                yield Violation(number=1, text=f"{key} was assigned to {_described(first)} and to {_described(answer)}")


def _lost_commits(entries: Iterable[Entry], commits: Iterable[StoredCommit]) -> Iterator[Violation]:
    stored = {(each.group_id, each.partition, each.offset) for each in commits}
    for answer in entries:
        if not isinstance(answer, CommitReply | LibraryCommit):
            continue
        if (answer.group_id, answer.partition, answer.offset) not in stored:
            who = _described(answer) if isinstance(answer, CommitReply) else answer.group_id
            text = f"{who} had the commit of {answer.offset} for partition {answer.partition} accepted: it is not there"
            yield Violation(number=2, text=text)


def _overwritten_commits(commits: Iterable[StoredCommit], ours: Mapping[_Group, int]) -> Iterator[Violation]:
    last: dict[tuple[_Group, int], StoredCommit] = {}
    for each in commits:
        if each.group_id not in ours:
            continue
        before = last.get((each.group_id, each.partition))
        if before is not None and int(before.metadata) > int(each.metadata):
            text = (
                f"{each.group_id}, partition {each.partition}: the commit of {before.offset} in generation"
                f" {before.metadata} was overwritten by {each.offset} of generation {each.metadata}"
            )
            yield Violation(number=2, text=text, place=each.place)
        last[each.group_id, each.partition] = each


def _not_recorded(entries: Iterable[Entry], recorded: Iterable[Recorded]) -> Iterator[Violation]:
    leaders: set[tuple[_Group, int, str | None]] = set()
    assigned: set[tuple[_Group, str, bytes]] = set()
    for each in recorded:
        match each.event:
            case GroupEvent() as event:
                leaders.add((event.group_id, event.group.generation_id, event.group.leader_id))
            case MemberEvent() as event:
                assigned.add((event.group_id, event.member.member_id, event.member.assignment))
            case _:
                pass
    for answer in entries:
        if isinstance(answer, JoinReply) and (answer.group_id, answer.generation_id, answer.leader) not in leaders:
            yield Violation(
                number=3, text=f"{_described(answer)} joined under leader {answer.leader}, which no event says"
            )
        if isinstance(answer, SyncReply) and (answer.group_id, answer.member_id, answer.assignment) not in assigned:
            yield Violation(number=3, text=f"{_described(answer)} has {answer.assignment!r}, which no event says")


def _evicted(
    entries: Iterable[Entry], recorded: Iterable[Recorded], sessions_ms: Mapping[_Group, int]
) -> Iterator[Violation]:
    heartbeats: dict[tuple[_Group, str], list[HeartbeatReply]] = defaultdict(list)
    for answer in entries:
        if isinstance(answer, HeartbeatReply):
            heartbeats[answer.group_id, answer.member_id].append(answer)
    for each in evictions(recorded):
        event = each.event
        at_ms = event.why.decided_ms
        session_ms = sessions_ms.get(event.group_id, event.member.session_timeout_ms)
        for answer in heartbeats[event.group_id, event.member.member_id]:
            if answer.asked_ms > at_ms - session_ms + ROUNDED_MS and answer.heard_ms < at_ms:
                text = (
                    f"{_described(answer)} was evicted {at_ms - answer.asked_ms} ms after it asked for that heartbeat"
                )
                yield Violation(number=4, text=text, place=_place(each))
                break


class Eviction(msgspec.Struct, frozen=True):
    """A member that was removed for its silence."""

    event: MemberRemoved
    recorded: Recorded


def evictions(recorded: Iterable[Recorded]) -> Iterator[Eviction]:
    """The members that were removed for their silence."""
    for each in recorded:
        if isinstance(each.event, MemberRemoved) and each.event.why.cause is Cause.SESSION_EXPIRED:
            yield Eviction(each.event, each)


def _deposed_answers(entries: Iterable[Entry], recorded: Iterable[Recorded]) -> Iterator[Violation]:
    ends: dict[tuple[_Group, int | str], tuple[int, Recorded]] = {}
    """When a generation, or a member, was over, and the event by which it was."""
    for each in recorded:
        event = each.event
        match event:
            case MemberRemoved():
                key: tuple[_Group, int | str] = (event.group_id, event.member.member_id)
            case StaticMemberReplaced():
                key = (event.group_id, event.replaced_member_id)
            case GroupEvent():
                key = (event.group_id, event.group.generation_id - 1)
            case _:
                continue
        ends.setdefault(key, (_decided_ms(event), each))
    for answer in entries:
        if not isinstance(answer, HeartbeatReply):
            continue
        for ended in (answer.generation_id, answer.member_id):
            end_ms, by = ends.get((answer.group_id, ended), (None, None))
            if end_ms is not None and by is not None and answer.asked_ms > end_ms + ROUNDED_MS:
                late_ms = answer.asked_ms - end_ms
                text = f"{_described(answer)} was told that all is well, {late_ms} ms after {ended} was no more"
                yield Violation(number=6, text=text, place=_place_of(by))
                break


def _decided_ms(event: Event) -> int:
    decided_ms: int = event.why.decided_ms  # type: ignore[attr-defined]
    return decided_ms


def _described(answer: ClientReply) -> str:
    return (
        f"{answer.instance or answer.member_id} of {answer.group_id} in generation {answer.generation_id} (asked at"
        f" {answer.asked_ms}, told at {answer.heard_ms} by {answer.via})"
    )


def _place(eviction: Eviction) -> str:
    return _place_of(eviction.recorded)


def _place_of(recorded: Recorded) -> str:
    return f"partition {recorded.at.partition}, offset {recorded.at.offset}"
