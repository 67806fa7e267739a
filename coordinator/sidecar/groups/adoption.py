"""One adoption's view of the upstream cluster: which members are still in the group there, or why that is unknown.

Reads the cluster's list of members and reconciles the move with it. Knows nothing of how members are notified.

A member that is no longer in the list and was not notified was dropped by the cluster, and has not revoked its
partitions. Its process may hang, and will learn that it lost them only when it continues.
"""

import asyncio
from collections.abc import Iterable

from muster.coordinator.group.move_text import names
from muster.coordinator.sidecar.groups.move import FormerMember, Move, Sender
from muster.coordinator.upstream.shadows import ShadowName
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.coordinator.upstream.upstream_members import NotAdoptable, UpstreamMember, upstream_members
from muster.events.ids import GroupId, MemberId
from muster.events.kafka.errors import LinkError


class Adoption:
    """One adoption. `still_upstream`: the members in the latest list; initially, the group's members when the move
    began.
    """

    def __init__(self, link: UpstreamLink, name: ShadowName, group_id: GroupId, move: Move) -> None:
        self.still_upstream: list[MemberId] = list(move.members)
        self._link = link
        self._name = name
        self._group_id = group_id
        self._move = move
        self._unknown: str | None = None
        """Why the last attempt to list the members failed; None if it succeeded."""
        self._listed_ms: int | None = None

    async def list_members(self, now_ms: int, *, within_ms: int) -> None:
        """List the members, with this timeout. A failure is kept for `reason`; a retry may succeed."""
        if self._listed_ms is None:
            self._listed_ms = now_ms
        try:
            async with asyncio.timeout(within_ms / 1000):
                members = await upstream_members(self._link, self._group_id, self._name)
        except TimeoutError:
            self._unknown = self._unknown or f"the upstream cluster did not respond within {within_ms / 1000:.0f} s"
        except LinkError as error:
            self._unknown = f"the upstream cluster did not respond: {error}"
        except NotAdoptable as error:
            self._unknown = str(error)
        else:
            self.still_upstream = _reconcile(self._move, members)
            self._unknown, self._listed_ms = None, now_ms

    def reason(self, now_ms: int) -> str:
        """Return why members are still upstream at the timeout: they sent no request, or could not be removed."""
        if self._unknown is None:
            return f"these members have not rejoined in time: {names(self._move.waits_for(now_ms))}"
        still = [self._move.members[each] for each in self.still_upstream]
        for_s = (now_ms - (self._listed_ms or now_ms)) // 1000
        return (
            f"no member could be removed upstream for the last {for_s} s: {self._unknown}; still there: {names(still)}"
        )


def former_member(member: UpstreamMember | Sender) -> FormerMember:
    """Return a member that must rejoin here; its timeouts are unknown."""
    return FormerMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )


def not_recent(absent: Iterable[UpstreamMember], members: int) -> str:
    """Return why a group is not adopted: these members sent no requests through this Muster."""
    listed = list(absent)
    were = "was" if len(listed) == 1 else "were"
    return (
        f"{len(listed)} of its {members} members {were} not seen here in the last minute: {names(listed)}. Connect "
        "clients of the cluster to this Muster first. A member that has just joined is seen at its first "
        "heartbeat, and the cluster removes a dead one when its session expires: try again then"
    )


def _reconcile(move: Move, members: Iterable[UpstreamMember]) -> list[MemberId]:
    """Reconcile with the list from upstream: mark missing members as dropped, and add new ones."""
    there = {each.member_id: each for each in members}
    for member_id in move.members.keys() - there.keys():
        move.mark_dropped(member_id)
    for each in there.values():
        move.add(former_member(each))
    return list(there)
