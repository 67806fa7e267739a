"""Finds problems in the status of processes, and says what to do about each.

Pure. A problem is something that members notice, or soon may; a note is something that an operator should know.
Processes belong to one service if they have the same event log.
"""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum, unique
from typing import Final

import msgspec

from muster.coordinator.client.commands.status_asking import Asked, Unanswered
from muster.coordinator.observability.status import ProcessStatus
from muster.durations import readable
from muster.ranges import partitions_text

JOIN_WAITS_MS: Final = 360_000
"""Longer than a join phase should last: more than the default of max.poll.interval.ms."""
APPEND_WAITS_MS: Final = 10_000


@unique
class Severity(StrEnum):
    UNANSWERED = "unanswered"
    PROBLEM = "problem"
    NOTE = "note"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding. `process`: the address of the process that reports it; None if it follows from several."""

    severity: Severity
    process: str | None
    what: str
    way_out: str


def findings(asked: Sequence[Asked]) -> list[Finding]:
    """Return the findings, worst first."""
    found: list[Finding] = []
    answered: dict[str, ProcessStatus] = {}
    for each in asked:
        if isinstance(each.answer, Unanswered):
            unanswered = each.answer
            found.append(_finding(Severity.UNANSWERED, each.address, unanswered.reason, unanswered.way_out))
        else:
            answered[each.address] = each.answer
            found += _of_process(each.address, each.answer)
    by_log: dict[str, dict[str, ProcessStatus]] = defaultdict(dict)
    for address, status in answered.items():
        by_log[status.ownership.log_identity or status.log][address] = status
    for of_log in by_log.values():
        found += _of_service(of_log, all_answered=len(answered) == len(asked))
    return sorted(found, key=lambda finding: list(Severity).index(finding.severity))


def _finding(severity: Severity, process: str | None, what: str, way_out: str) -> Finding:
    return Finding(severity=severity, process=process, what=what, way_out=way_out)


def _of_process(address: str, status: ProcessStatus) -> Iterator[Finding]:
    problem, note = Severity.PROBLEM, Severity.NOTE
    ownership = status.ownership
    if status.not_well is not None:
        yield _finding(problem, address, status.not_well, "its log names what blocks it; restart it if that lasts")
    if status.not_ready is not None:
        way_out = "docs/runbook.md#musternotready describes what to do; the process's log has details"
        yield _finding(problem, address, f"not ready: {status.not_ready}", way_out)
    over = [each.partition for each in ownership.owned if each.lease_left_ms == 0]
    if over:
        said = f"its lease has expired for {partitions_text(over)}: it answers no requests for their groups"
        yield _finding(problem, address, said, "check the event log's brokers, and the network to them")
    if slow := [each for each in ownership.owned if each.append_waits_ms > APPEND_WAITS_MS]:
        longest = readable(max(each.append_waits_ms for each in slow))
        said = f"appends of {partitions_text(each.partition for each in slow)} have had no response for {longest}"
        yield _finding(problem, address, said, "check the event log's brokers, or its disk")
    if off := [each.partition for each in ownership.owned if each.read_only]:
        said = f"{partitions_text(off)}: taken over from a process that did not stop cleanly"
        yield _finding(
            note, address, f"{said}; nothing changes until that process's lease expires", "wait: it takes seconds"
        )
    if ownership.oldest_parked_ms > JOIN_WAITS_MS:
        group_id = ownership.oldest_parked_group
        said = f"a member of group {group_id} has waited {readable(ownership.oldest_parked_ms)} for the others"
        yield _finding(
            problem, address, said, f"muster replay why {shlex.quote(group_id)} names the members that it waits for"
        )
    for group in ownership.quarantined:
        said = f"group {group.group_id} is not served, a record cannot be read: {group.reason}"
        yield _finding(problem, address, said, group.way_out)
    if (more := ownership.quarantined_count - len(ownership.quarantined)) > 0:
        yield _finding(problem, address, f"{more} more groups are not served", "its log names them")
    for peer in status.peers:
        if not peer.connected:
            said = f"it has no connection to node {peer.node_id} at {peer.address}"
            yield _finding(
                note, address, said, "without it, the end of that node is noticed only when its session expires"
            )
    yield from _of_log(address, status)
    yield from _of_groups(address, status)
    yield from _of_links(address, status)
    yield from _of_shadows(address, status)


def _of_log(address: str, status: ProcessStatus) -> Iterator[Finding]:
    for flaw in status.log_flaws:
        way_out = "docs/runbook.md#mustereventlogflaws describes the consequences"
        yield _finding(Severity.PROBLEM, address, flaw, way_out)


def _of_groups(address: str, status: ProcessStatus) -> Iterator[Finding]:
    """Find unassigned partitions, and groups that upstream coordinates."""
    for each in status.unassigned:
        what = "partition" if each.partitions == 1 else "partitions"
        minutes = each.unassigned_ms // 60_000
        said = f"group {each.group_id}: {what} {each.numbers} of {each.topic} have been unassigned for {minutes} min"
        yield _finding(Severity.PROBLEM, address, said, each.way_out)
    if (more := status.unassigned_count - len(status.unassigned)) > 0:
        yield _finding(
            Severity.PROBLEM, address, f"{more} more topics have unassigned partitions", "its log names some"
        )
    for group in status.upstream_groups:
        yield _finding(
            Severity.NOTE, address, f"Muster does not coordinate group {group.group_id}: {group.reason}", group.way_out
        )


def _of_links(address: str, status: ProcessStatus) -> Iterator[Finding]:
    """Find owners that requests cannot be forwarded to, unless /readyz reports it already."""
    links = status.links
    if links.no_owner_reached_ms and status.not_ready is None:
        said = f"it has reached no owner of any partition for {readable(links.no_owner_reached_ms)}"
        way_out = "a takeover takes seconds; if it lasts, check the owners and the network to them"
        yield _finding(Severity.PROBLEM, address, said, way_out)
    for each in links.to:
        if not each.reached and each.error:
            said = f"it cannot reach node {each.node_id} at {each.address}: {each.error}"
            way_out = (
                "requests for that node's groups wait; check --peer-secret-file, --peer-tls-... and "
                "--peer-advertise of both, and the network between them"
            )
            yield _finding(Severity.PROBLEM, address, said, way_out)


def _of_shadows(address: str, status: ProcessStatus) -> Iterator[Finding]:
    if status.shadows is None or not status.shadows.missing_count:
        return
    for each in status.shadows.missing:
        why = each.error or "it is being created"
        severity = Severity.PROBLEM if each.error else Severity.NOTE
        yield _finding(
            severity,
            address,
            f"group {each.group_id} has no shadow upstream: {why}",
            "its commits wait for it; check the broker that coordinates the group",
        )
    if (more := status.shadows.missing_count - len(status.shadows.missing)) > 0:
        yield _finding(Severity.PROBLEM, address, f"{more} more groups have none", "as above")


def _of_service(of_log: Mapping[str, ProcessStatus], *, all_answered: bool) -> Iterator[Finding]:
    """Find what follows from the processes of one event log together."""
    owners: dict[int, list[str]] = defaultdict(list)
    for address, status in of_log.items():
        for owned in status.ownership.owned:
            owners[owned.partition].append(address)
    elsewhere = {each.partition for status in of_log.values() for each in status.elsewhere}
    partitions = max(status.ownership.log_partitions for status in of_log.values())
    twice: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, by in sorted(owners.items()):
        if len(by) > 1:
            twice[tuple(by)].append(number)
    for both, numbers in twice.items():
        are = "is" if len(numbers) == 1 else "are"
        said = f"{partitions_text(numbers)} {are} served by {' and '.join(both)}, as both report"
        way_out = "the log accepts appends of only one; the other stops answering when its lease expires: stop it"
        yield _finding(Severity.PROBLEM, None, said, way_out)
    nobodys = [number for number in range(partitions) if number not in owners]
    if all_answered:
        lost = [number for number in nobodys if number not in elsewhere]
        asked_too_few = [number for number in nobodys if number in elsewhere]
        if asked_too_few:
            others = {each.address for status in of_log.values() for each in status.elsewhere}
            said = f"{partitions_text(asked_too_few)}: owned by a process that was not asked"
            yield _finding(
                Severity.NOTE,
                None,
                said,
                f"name the --metrics address of the process at {', '.join(sorted(others))}, too",
            )
    else:
        lost = nobodys
    waiting = {each.partition: address for address, status in of_log.items() for each in status.ownership.waiting}
    if assigned := [number for number in lost if number in waiting]:
        whom = ", ".join(dict.fromkeys(waiting[number] for number in assigned))
        said = f"{partitions_text(assigned)}: not served yet by {whom}; their groups wait"
        yield _finding(Severity.PROBLEM, None, said, "see above why it is not ready; it serves them when it is")
    if lost := [number for number in lost if number not in waiting]:
        said = f"{partitions_text(lost)}: served by none of those that answer; their groups wait"
        yield _finding(Severity.PROBLEM, None, said, "start the missing process, or find out why no process takes them")
    versions = {status.version for status in of_log.values()}
    if len(versions) > 1:
        said = f"the processes run different versions: {', '.join(sorted(versions))}"
        yield _finding(Severity.NOTE, None, said, "finish the deployment that was left half done")
