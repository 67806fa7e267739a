"""Names of members, hosts and counts in an incident's sentences."""

from collections import Counter
from collections.abc import Iterable, Sequence

from muster.events.state import Member
from muster.replay.rebalances.rebalance import MemberRef, ref
from muster.replay.rebalances.wording import host, name
from muster.replay.text.grammar import listed
from muster.replay.text.times import moment

NAMED_MAX = 5


def process_name(member: Member | MemberRef) -> str:
    """Return the name under which operators know the process: its instance id, else its client id, with the host."""
    if member.group_instance_id is not None:
        return f"'{member.group_instance_id}' ({host(member.client_host)})"
    (of,) = refs((member,))
    return f"'{member.client_id or name(of)}' ({host(member.client_host)})"


def processes(members: Sequence[Member | MemberRef], at_most: int = NAMED_MAX) -> str:
    """Name the first few members and count the others; members with the same name are counted, too.

    `render/incident_table.py` lists the other culprits in a separate row.
    """
    counts = Counter(process_name(member) for member in members)
    names = [name if count == 1 else f"{count} of {name}" for name, count in counts.items()]
    if len(names) > at_most:
        shown = sum(list(counts.values())[:at_most])
        names = [*names[:at_most], f"{len(members) - shown} more"]
    return listed(names)


def refs(members: Iterable[Member | MemberRef]) -> tuple[MemberRef, ...]:
    return tuple(each if isinstance(each, MemberRef) else ref(each) for each in members)


def common_network(members: Sequence[Member]) -> str | None:
    """Return '10.0.1.x' if all hosts are IPv4 addresses in one /24, or their only host; None otherwise."""
    hosts = {host(member.client_host) for member in members}
    if len(hosts) == 1:
        return next(iter(hosts))
    parts = [each.split(".") for each in hosts]
    if all(len(each) == 4 for each in parts) and len({tuple(each[:3]) for each in parts}) == 1:
        return ".".join(parts[0][:3]) + ".x"
    return None


def span(from_ms: int, to_ms: int) -> str:
    """E.g. '2026-11-21 02:14:07 to 02:14:21 UTC', with the day of the end if it is another day."""
    begin, end = moment(from_ms).removesuffix(" UTC"), moment(to_ms)
    return f"{begin} to {end[11:] if end[:10] == begin[:10] else end}"
