"""The invariants of a schedule, over the log and over the responses that clients received. Violations name their
numbers.

1. No partition is assigned to two members of one generation, as far as members know. A static member that has restarted
   is the same one.
2. Each accepted commit is in the log, and none of an older generation follows it.
3. What a client was sent is in the log: who leads which generation, its assignment, that it has left.
4. No process evicts a member for its silence within the session after a heartbeat that it accepted; nor, except for the
   time of a lease, after one that any process accepted.
5. The log is one history: the events of a group are numbered without a gap, and what the last owner has in memory is
   what the log projects to; the same holds for committed offsets.
6. No client got a wrong success: no process accepts a heartbeat of an older generation, or of an unknown member.
7. When the faults have ended, every member is served.
8. No deposed owner accepts heartbeats: a member whose heartbeat succeeds is in that generation according to the new
   owner when the response leaves. A process that is just taking the partition over accepts every heartbeat, as brokers
   do (G20).
9. A fetch of offsets returns nothing older than a commit that had been accepted when it was sent.
10. No response is older than a lease: a process passes an answer on, or answers in the name of the owner, only while
    the owner could still give it.
11. A join creates one member, however many owners it was sent to: the log has no more dynamic members unknown to
    clients than there were joins without a response.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

import msgspec

from muster.coordinator.runtime.ownership.owned_partition import OwnedPartition
from muster.coordinator.runtime.runtime import LOADED_SOON_MS
from muster.events.avro.codec import decode
from muster.events.causes import Cause
from muster.events.events import (
    AnyRecordedEvent,
    CoordinatorReady,
    Event,
    GroupEvent,
    MemberEvent,
    MemberJoined,
    MemberRemoved,
    StaticMemberReplaced,
)
from muster.events.ids import GroupId
from muster.events.partitioner import partition_for
from muster.events.projector import Projector
from muster.events.state import Group
from tests.simulation.committed import offsets_in, offsets_of
from tests.simulation.ledger import ClientReply, CommitReply, Ledger
from tests.simulation.log_broker import Appended, LogBroker
from tests.simulation.members import HEARTBEAT_S, SESSION_S, Member, partitions_of
from tests.simulation.muster_server import MusterServer
from tests.simulation.schedule import Played

SERVED_WITHIN_S = 4 * HEARTBEAT_S
CLOCK_S = 0.001
"""The resolution of the clock for sessions: a process may consider a heartbeat this much older than it is."""
SLACK_S = 1.0
"""The tolerance for late messages between processes and late checks of deadlines."""

_Group = str


class Recorded(msgspec.Struct, frozen=True):
    """An event in the log, and its batch."""

    event: AnyRecordedEvent
    batch: Appended


def violations(played: Played) -> list[str]:
    """Return all that does not hold, each with its number."""
    recorded = list(recorded_in(played.topics.events))
    ledger = played.members.ledger
    ledger.counts["evictions"] = sum(1 for _ in evictions(recorded))
    return [
        *(f"1: {text}" for text in _shared_partitions(ledger)),
        *(f"2: {text}" for text in _lost_commits(ledger, played.offsets)),
        *(f"3: {text}" for text in _not_recorded(ledger, recorded)),
        *(f"4: {text}" for text in _evicted(ledger, recorded)),
        *(f"4: {text}" for text in _evicted_though_heard(ledger, recorded, played.answer_lease_ms / 1_000)),
        *(f"5: {text}" for text in _not_one_history(recorded)),
        *(f"5: {text}" for text in _differs(played.servers, played.topics.events)),
        *(f"5: {text}" for text in _offsets_differ(played.servers, played.topics.offsets)),
        *(f"6: {text}" for text in ledger.wrongs),
        *(f"8: {text}" for text in _deposed_answers(ledger, recorded, played.topics.events)),
        *(f"9: {text}" for text in _old_offsets(ledger, played.offsets)),
        *(f"10: {text}" for text in _old_news(ledger, recorded, played.answer_lease_ms / 1_000)),
        *(f"11: {text}" for text in _made_twice(ledger, recorded)),
        *(f"7: {text}" for text in _not_served(played.everybody, played.end_s)),
    ]


def recorded_in(broker: LogBroker) -> Iterator[Recorded]:
    """The events of a log, in its order."""
    by_start = {(batch.partition, batch.offsets.start): batch for batch in broker.appended}
    for partition, records in enumerate(broker.storage.records):
        batch = None
        for record in records:
            batch = by_start.get((partition, record.offset), batch)
            assert batch is not None
            if record.value is not None:
                yield Recorded(decode(record.value), batch)


def _shared_partitions(ledger: Ledger) -> Iterator[str]:
    holders: dict[tuple[_Group, int, int], tuple[str, str]] = {}
    for answer in ledger.syncs:
        who = answer.instance or answer.member_id
        for partition in partitions_of(answer.assignment):
            key = answer.group_id, answer.generation_id, partition
            holder, by = holders.setdefault(key, (who, answer.process))
            if holder != who:
                yield f"{key} was assigned to {holder} by {by} and to {who} by {answer.process}"


def _stored_commits(broker: LogBroker) -> Mapping[tuple[_Group, int], list[tuple[int, int]]]:
    """The commits in the log, in its order: generation and offset, by group and partition."""
    stored: dict[tuple[_Group, int], list[tuple[int, int]]] = defaultdict(list)
    for records in broker.storage.records:
        for record in records:
            key = msgspec.json.decode(record.key)
            if "owner" not in key and record.value is not None:
                value = msgspec.json.decode(record.value)
                stored[key["group"], key["partition"]].append((int(value["metadata"]), value["offset"]))
    return stored


def _old_offsets(ledger: Ledger, broker: LogBroker) -> Iterator[str]:
    order = {
        (group_id, partition): {offset: number for number, (_, offset) in enumerate(commits)}
        for (group_id, partition), commits in _stored_commits(broker).items()
    }
    accepted: dict[tuple[_Group, int], list[CommitReply]] = defaultdict(list)
    for commit in ledger.commits:
        accepted[commit.group_id, commit.partition].append(commit)
    for fetch in ledger.fetches:
        numbers = order.get((fetch.group_id, fetch.partition), {})
        found = numbers.get(fetch.offset, -1)
        for commit in accepted[fetch.group_id, fetch.partition]:
            if commit.heard_s < fetch.asked_s and numbers.get(commit.offset, -1) > found:
                yield (
                    f"{_text(fetch)} has the offset {fetch.offset}, when {commit.process} had accepted {commit.offset}"
                )


def _lost_commits(ledger: Ledger, broker: LogBroker) -> Iterator[str]:
    stored = _stored_commits(broker)
    for (group_id, partition), commits in stored.items():
        for (older, offset), (newer, later) in pairwise(commits):
            if newer < older:
                yield f"{group_id}, {partition}: {offset} of generation {older} was overwritten by {later} of {newer}"
    for answer in ledger.commits:
        if (answer.generation_id, answer.offset) not in stored[answer.group_id, answer.partition]:
            yield f"{answer.group_id}: the commit {answer.offset} that {answer.process} accepted is not there"


def _not_recorded(ledger: Ledger, recorded: list[Recorded]) -> Iterator[str]:
    leaders: set[tuple[_Group, int, str | None]] = set()
    assigned: set[tuple[_Group, str, bytes]] = set()
    removed: set[tuple[_Group, str]] = set()
    for each in recorded:
        match each.event:
            case GroupEvent() as event:
                leaders.add((event.group_id, event.group.generation_id, event.group.leader_id))
            case MemberEvent() as event:
                member = event.member
                assigned.add((event.group_id, member.member_id, member.assignment))
                if isinstance(event, MemberRemoved):
                    removed.add((event.group_id, member.member_id))
                elif isinstance(event, StaticMemberReplaced):
                    removed.add((event.group_id, event.replaced_member_id))
    for join in ledger.joins:
        # An absorbed restart of a leader, repeated at the next owner: the former leader is no longer known.
        leader = join.leader or join.member_id
        if (join.group_id, join.generation_id, leader) not in leaders:
            yield f"{_text(join)} joined under leader {join.leader}, which no event says"
    for sync in ledger.syncs:
        if (sync.group_id, sync.member_id, sync.assignment) not in assigned:
            yield f"{_text(sync)} has the assignment {sync.assignment!r}, which no event says"
    for left in ledger.leaves:
        if (left.group_id, left.member_id) not in removed:
            yield f"{_text(left)} has left, which no event says"


def _text(answer: ClientReply) -> str:
    return f"{answer.process} told {answer.member_id} of {answer.group_id} at {answer.heard_s:.3f} that it"


def _evicted(ledger: Ledger, recorded: list[Recorded]) -> Iterator[str]:
    heartbeats: dict[tuple[str, _Group, str], list[ClientReply]] = defaultdict(list)
    for answer in ledger.heartbeats:
        if not answer.is_delegated:
            heartbeats[answer.process, answer.group_id, answer.member_id].append(answer)
    for event, batch in evictions(recorded):
        for answer in heartbeats[batch.process, event.group_id, event.member.member_id]:
            if answer.asked_s > batch.sent_s - SESSION_S + CLOCK_S and answer.left_s < batch.sent_s:
                yield (
                    f"{batch.process} evicted {event.member.member_id} at {batch.sent_s:.3f}, after a heartbeat of"
                    f" {answer.asked_s:.3f}"
                )


def _evicted_though_heard(ledger: Ledger, recorded: list[Recorded], lease_s: float) -> Iterator[str]:
    heartbeats: dict[tuple[_Group, str], list[ClientReply]] = defaultdict(list)
    for answer in ledger.heartbeats:
        heartbeats[answer.group_id, answer.member_id].append(answer)
    for event, batch in evictions(recorded):
        for answer in heartbeats[event.group_id, event.member.member_id]:
            if answer.asked_s > batch.sent_s - SESSION_S + lease_s + SLACK_S and answer.passed_s < batch.sent_s:
                yield (
                    f"{batch.process} evicted {event.member.member_id} at {batch.sent_s:.3f}, when {answer.process} had"
                    f" accepted a heartbeat of {answer.asked_s:.3f}"
                )


def _old_news(ledger: Ledger, recorded: list[Recorded], lease_s: float) -> Iterator[str]:
    ends = _ends(recorded)
    for answer in ledger.heartbeats:
        if answer.passed_s - answer.left_s > lease_s:
            yield f"{_text(answer)} is a member, and had it from {answer.left_s:.3f} at {answer.passed_s:.3f}"
        for ended in (answer.generation_id, answer.member_id) if answer.is_delegated else ():
            end = ends.get((answer.group_id, ended))
            if end is not None and answer.passed_s > end.arrived_s + lease_s + SLACK_S:
                yield f"{_text(answer)} is in generation {answer.generation_id}, in its name, when {ended} was no more"


def _deposed_answers(ledger: Ledger, recorded: list[Recorded], events: LogBroker) -> Iterator[str]:
    """Return the heartbeats that were accepted after another owner had continued without their sender.

    An answer that its own owner sent late, such as one that waited for a proof, is like one that the network delivered
    late.
    """
    ends, ready_s = _ends(recorded), defaultdict[tuple[str, int], list[float]](list)
    for each in recorded:
        if isinstance(each.event, CoordinatorReady):
            ready_s[each.batch.process, each.batch.partition].append(each.batch.arrived_s)

    def is_loading(answer: ClientReply) -> bool:
        number = partition_for(GroupId(answer.group_id), len(events.storage.records))
        return any(0 <= at_s - answer.left_s < LOADED_SOON_MS / 1_000 for at_s in ready_s[answer.process, number])

    for answer in ledger.heartbeats:
        for ended in (answer.generation_id, answer.member_id):
            end = ends.get((answer.group_id, ended))
            if end is None or answer.left_s <= end.arrived_s or answer.process == end.process:
                continue
            if not is_loading(answer):
                generation_id = answer.generation_id
                yield f"{_text(answer)} is in generation {generation_id}, when by {end.process} {ended} was no more"
                break


def _made_twice(ledger: Ledger, recorded: list[Recorded]) -> Iterator[str]:
    unknown: dict[_Group, set[str]] = defaultdict(set)
    for each in recorded:
        if isinstance(each.event, MemberJoined) and each.event.member.group_instance_id is None:
            member_id = each.event.member.member_id
            if member_id not in ledger.member_ids:
                unknown[each.event.group_id].add(member_id)
    for group_id, members in unknown.items():
        if len(members) > ledger.lost_joins[group_id]:
            yield f"{group_id} had the members {members}, and {ledger.lost_joins[group_id]} joins had no answer"


def _ends(recorded: list[Recorded]) -> Mapping[tuple[_Group, int | str], Appended]:
    """Return the batch that ended each generation, and each member that has not returned under its id.

    A join that is sent again to the next owner creates the same member again, if the owner had removed it meanwhile.
    """
    ends: dict[tuple[_Group, int | str], Appended] = {}
    for each in recorded:
        match each.event:
            case MemberRemoved() as event:
                ends.setdefault((event.group_id, event.member.member_id), each.batch)
            case StaticMemberReplaced() as event:
                ends.setdefault((event.group_id, event.replaced_member_id), each.batch)
                ends.pop((event.group_id, event.member.member_id), None)
            case MemberJoined() as event:
                ends.pop((event.group_id, event.member.member_id), None)
            case GroupEvent() as event:
                ends.setdefault((event.group_id, event.group.generation_id - 1), each.batch)
            case _:
                pass
    return ends


def evictions(recorded: list[Recorded]) -> Iterator[tuple[MemberRemoved, Appended]]:
    """The members that were evicted for their silence."""
    for each in recorded:
        if isinstance(each.event, MemberRemoved) and each.event.why.cause is Cause.SESSION_EXPIRED:
            yield each.event, each.batch


def _not_one_history(recorded: list[Recorded]) -> Iterator[str]:
    last: dict[tuple[_Group, int], int] = {}
    for each in recorded:
        if isinstance(each.event, Event):
            key, seq = (each.event.group_id, each.event.incarnation), each.event.seq
            if key in last and seq != last[key] + 1:
                yield f"{key}: event {seq} of {each.batch.process} comes after {last[key]}"
            last[key] = seq


def _differs(servers: list[MusterServer], broker: LogBroker) -> Iterator[str]:
    owned = [each for server in servers if server.is_running for each in _owned(server).items()]
    if sorted(number for number, _ in owned) != list(range(len(broker.storage.records))):
        yield f"the partitions that are served at the end are {sorted(number for number, _ in owned)}"
    live = {group.group_id: group for _, ownership in owned for group in ownership.partition.groups()}
    projected = _projected(broker)
    for group_id in projected.keys() | live.keys():
        if projected.get(group_id) != live.get(group_id):
            yield f"{group_id} is not in memory what the log says"


def _offsets_differ(servers: list[MusterServer], broker: LogBroker) -> Iterator[str]:
    live = dict[GroupId, Mapping[tuple[str, int], int]]()
    for server in servers:
        if server.is_running and server.runtime is not None:  # until released, a partition is still there
            owned, partitions = _owned(server), len(broker.storage.records)
            of_all = offsets_in(server.runtime._offsets).items()
            live |= {group_id: each for group_id, each in of_all if partition_for(group_id, partitions) in owned}
    stored = {group_id: each for records in broker.storage.records for group_id, each in offsets_of(records).items()}
    for group_id in stored.keys() | live.keys():
        if stored.get(group_id) != live.get(group_id):
            yield f"{group_id} has not the offsets in memory that the topic says"


def _owned(server: MusterServer) -> dict[int, OwnedPartition]:
    return {} if server.runtime is None else server.runtime._owned


def _projected(broker: LogBroker) -> Mapping[GroupId, Group]:
    groups: dict[GroupId, Group] = {}
    for records in broker.storage.records:
        projector = Projector()
        for record in records:
            projector.feed(record)
        groups |= projector.groups
    return groups


def _not_served(everybody: list[Member], end_s: float) -> Iterator[str]:
    for member in everybody:
        silent_s = end_s - member.last_heartbeat_s
        if silent_s > SERVED_WITHIN_S:
            yield f"{member.name} was not served for {silent_s:.1f} s"
