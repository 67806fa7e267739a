"""How a step is executed: the requests that it means, given the members' earlier responses.

It has one function for each kind of step, and skips steps with known differences between the servers.
"""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Final

from tests.conformance.fuzz.actor import PROTOCOLS, Actor, Request
from tests.conformance.fuzz.fuse import PREPARING, STABLE
from tests.conformance.fuzz.leadership import DEAD
from tests.conformance.fuzz.player import Player
from tests.conformance.fuzz.schedule import (
    AnyStep,
    Behave,
    DeleteGroups,
    DescribeGroups,
    Gather,
    Heartbeat,
    Identified,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    Offset,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Pass,
    Restart,
    SyncGroup,
    Tidy,
    describe,
)
from tests.conformance.fuzz.servers import METADATA_MAX, SIZE_MAX
from tests.conformance.member import TOPICS, by_topic
from tests.conformance.wire import Fields, ms

ROUNDS: Final = 4
"""How often gathering members behave, at most: join, sync, and once more when they learn of another rebalance."""

ADMIN_VERSIONS: Final[Mapping[str, int]] = {
    "OffsetFetch": 10,
    "OffsetDelete": 0,
    "DescribeGroups": 6,
    "ListGroups": 5,
    "DeleteGroups": 2,
}


class Play:
    """A schedule being played: the player, and what members agree on."""

    def __init__(self, player: Player) -> None:
        self.player = player
        self.liked: Sequence[str] = PROTOCOLS
        """The order in which all voting members prefer protocols: a tie could be broken in two ways (S10)."""

    async def all_steps(self) -> None:
        """Execute one step after another, and let time pass after the last."""
        for number, step in enumerate(self.player.schedule.steps):
            self.player.begin(number, describe(step))
            await take(step, self)
        self.player.begin(len(self.player.schedule.steps), "the end")
        await self.player.pass_time()

    def actor(self, step: AnyStep) -> Actor:
        """The actor of a step."""
        return self.player.actors[step.who]

    def posed(self, step: Identified) -> Actor:
        """The actor whose identity a step claims."""
        return self.player.actors[step.who if step.pose is None else step.pose]

    # ---- joining ---------------------------------------------------------------------------------------

    async def enter(self, actor: Actor, step: JoinGroup) -> None:
        """A join, repeated with the returned id if one is required (KIP-394)."""
        await self.join(actor, step)
        if actor.has_just_an_id and not self.player.is_parked(actor):
            await self.join(actor, step)

    async def join(self, actor: Actor, step: JoinGroup) -> None:
        """JoinGroup, unless the servers are known to differ in what follows."""
        player = self.player
        liked = self.liked if not step.flip else (*reversed(self.liked),)
        request = actor.join(
            step,
            self.posed(step),
            player.group_id,
            protocol_type=player.schedule.protocol_type if step.protocol_type is None else step.protocol_type,
            liked=liked,
            patient=player.schedule.patient,
        )
        if step.flip and not self._alone(request):
            player.account.remark("others have a vote")
            return
        for _ in range(2 if step.twice else 1):
            reason = self._differs(request)
            if reason:
                player.account.remark(reason)
                return
            self.liked = liked
            await player.ask(request)

    def _alone(self, request: Request) -> bool:
        """Return whether only the sender votes, and the request will certainly be accepted."""
        members = self.player.view.members
        return not members or (len(members) == 1 and self.player.view.member_of(request.restarts) is not None)

    def _differs(self, request: Request) -> str:
        view, player = self.player.view, self.player
        replaced = view.member_of(request.restarts)
        if replaced is None:
            return ""
        if len(view.members) >= SIZE_MAX:
            return "QK4: Kafka refuses a static member of a full group its own place"
        if view.state == STABLE and not player.schedule.patient and not player.fuse.has_synced(replaced):
            return "QK1: Kafka waits for the sync of the process that is replaced"
        return ""

    # ---- behaving --------------------------------------------------------------------------------------

    async def behave(self, actor: Actor) -> None:
        """Send the client's next request. A member learns of a rebalance here as by its next heartbeat."""
        player = self.player
        parked = player.is_parked(actor)
        if not parked and (actor.must_join or player.view.state == PREPARING):
            await self.enter(actor, JoinGroup(who=player.actors.index(actor)))
        elif not parked and not actor.has_synced:
            await player.ask(
                actor.sync(SyncGroup(), actor, player.group_id, protocol_type=player.schedule.protocol_type)
            )
        elif actor.member_id:
            await player.ask(heartbeat(Heartbeat(), actor, actor, player.group_id))

    def is_done(self, actors: Sequence[Actor]) -> bool:
        """Return whether they all are members of a stable group."""
        player = self.player
        return player.view.state == STABLE and all(
            actor.has_synced and not actor.must_join and actor.member_id in player.view.members for actor in actors
        )


@singledispatch
async def take(step: AnyStep, play: Play) -> None:
    """Execute a step."""
    raise NotImplementedError(step)


@take.register
async def _(step: Behave, play: Play) -> None:
    await play.behave(play.actor(step))


@take.register
async def _(step: Gather, play: Play) -> None:
    actors = [play.player.actors[who] for who in step.whos]
    for _ in range(ROUNDS):
        for actor in actors:
            if not play.player.is_parked(actor) and not play.is_done([actor]):
                await play.behave(actor)
        if play.is_done(actors):
            return
        await play.player.initial_rebalance()


@take.register
async def _(step: Pass, play: Play) -> None:
    await play.player.pass_time()


@take.register
async def _(step: Tidy, play: Play) -> None:
    await play.player.tidy()


@take.register
async def _(step: Restart, play: Play) -> None:
    actor = play.actor(step)
    actor.restart(step.era)
    await play.enter(actor, JoinGroup(who=step.who, brief=step.brief))


@take.register
async def _(step: JoinGroup, play: Play) -> None:
    await play.join(play.actor(step), step)


@take.register
async def _(step: SyncGroup, play: Play) -> None:
    player = play.player
    protocol_type = player.schedule.protocol_type
    request = play.actor(step).sync(step, play.posed(step), player.group_id, protocol_type=protocol_type)
    await player.ask(*[request] * (2 if step.twice else 1))


@take.register
async def _(step: Heartbeat, play: Play) -> None:
    await play.player.ask(heartbeat(step, play.actor(step), play.posed(step), play.player.group_id))


def heartbeat(step: Heartbeat, actor: Actor, posed: Actor, group_id: str) -> Request:
    """Heartbeat."""
    body = {
        **actor.identity(step, posed, group_id),
        "generation_id": posed.generation_as(step.generation),
    }
    return actor.request("Heartbeat", body, version=step.version)


@take.register
async def _(step: LeaveGroup, play: Play) -> None:
    player = play.player
    actors = [player.actors[leaver.who] for leaver in step.leavers]
    entries = [
        {"member_id": actor.id_as(of.member_id), "group_instance_id": actor.instance_as(of.instance_id), "reason": ""}
        for actor, of in zip(actors, step.leavers, strict=True)
    ]
    body = {
        "group_id": player.group_id,
        "member_id": entries[0]["member_id"] if entries else "",
        "members": entries,
    }
    await player.ask(play.actor(step).request("LeaveGroup", body, "member_id", version=step.version))


# ---- offsets -------------------------------------------------------------------------------------------


@take.register
async def _(step: OffsetCommit, play: Play) -> None:
    player, posed = play.player, play.posed(step)
    body = {
        **play.actor(step).identity(step, posed, player.group_id),
        "generation_id_or_member_epoch": posed.generation_as(step.generation),
        "retention_time": ms(step.retention_ms),
        "topics": [
            {"name": topic, "topic_id": player.topic_id(topic), "partitions": partitions}
            for topic, partitions in _to_commit(step.offsets).items()
        ],
    }
    if player.view.state == DEAD and body["generation_id_or_member_epoch"] < 0 and _all_are_refused(step.offsets):
        player.account.remark("Kafka shows the group that this makes when it next writes to the partition: DG5, OC15")
        return
    await player.ask(play.actor(step).request("OffsetCommit", body, "retention_time", "topics", version=step.version))


def _all_are_refused(offsets: Sequence[Offset]) -> bool:
    """Return whether the group is asked, and then nothing is written."""
    asked_for = [each for each in offsets if each.partition < TOPICS.get(each.topic, 0)]
    return bool(asked_for) and all((each.metadata or 0) > METADATA_MAX for each in asked_for)


def _to_commit(offsets: Sequence[Offset]) -> Mapping[str, list[Fields]]:
    topics: dict[str, list[Fields]] = {}
    for each in offsets:
        partition = {
            "partition_index": each.partition,
            "committed_offset": each.offset,
            "committed_leader_epoch": -1,
            "commit_timestamp": -1,
            "committed_metadata": None if each.metadata is None else "m" * each.metadata,
        }
        topics.setdefault(each.topic, []).append(partition)
    return topics


@take.register
async def _(step: OffsetFetch, play: Play) -> None:
    player = play.player
    topics = [
        {"name": topic, "topic_id": player.topic_id(topic), "partition_indexes": tuple(partitions)}
        for topic, partitions in by_topic(step.partitions).items()
    ]
    requested = topics or None
    version = _admin_version(step, "OffsetFetch")
    if requested is None and version == 1:
        requested = []  # before v2 a request cannot ask for all
    groups = _group_ids(play, others=step.others and version >= 8)
    body = {
        "group_id": player.group_id,
        "topics": requested,
        "groups": [{"group_id": each, "topics": requested, "member_id": None, "member_epoch": -1} for each in groups],
        "require_stable": step.require_stable,
    }
    await player.ask(player.by_admin("OffsetFetch", version, body))


@take.register
async def _(step: OffsetDelete, play: Play) -> None:
    topics = [
        {"name": topic, "partitions": [{"partition_index": each} for each in partitions]}
        for topic, partitions in by_topic(step.partitions).items()
    ]
    body = {"group_id": play.player.group_id, "topics": topics}
    await play.player.ask(play.player.by_admin("OffsetDelete", 0, body))


# ---- administrators' requests --------------------------------------------------------------------------


@take.register
async def _(step: DescribeGroups, play: Play) -> None:
    body = {"groups": _group_ids(play, others=step.others), "include_authorized_operations": step.operations}
    await play.player.ask(play.player.by_admin("DescribeGroups", _admin_version(step, "DescribeGroups"), body))


@take.register
async def _(step: ListGroups, play: Play) -> None:
    body = {"states_filter": step.states, "types_filter": step.types}
    await play.player.ask(play.player.by_admin("ListGroups", _admin_version(step, "ListGroups"), body))


@take.register
async def _(step: DeleteGroups, play: Play) -> None:
    body = {"groups_names": _group_ids(play, others=step.others)}
    await play.player.ask(play.player.by_admin("DeleteGroups", _admin_version(step, "DeleteGroups"), body))


def _admin_version(step: AnyStep, api: str) -> int:
    return ADMIN_VERSIONS[api] if step.version is None else step.version


def _group_ids(play: Play, *, others: bool) -> list[str]:
    return [play.player.group_id, play.player.other_group_id] if others else [play.player.group_id]
