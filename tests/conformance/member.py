"""A member in a script: a process with its own connection, which remembers its last responses.

Its requests are in the terms of the protocol, with the defaults of a patient consumer. The scripts check the responses.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from tests.conformance.eras import Era, version_in
from tests.conformance.transcript import Transcript
from tests.conformance.wire import Connection, Fields, Pending, ms

SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 20_000
SHORT_MS: Final = 1_200
"""Long enough for its steps on a slow machine, short enough to wait for."""

NO_GENERATION: Final = -1
NOBODY: Final = "client-00000000-0000-4000-8000-000000000000"
"""A member id of the right form that no server has handed out."""

ORDERS: Final = "conformance-orders"
CLICKS: Final = "conformance-clicks"
NO_SUCH_TOPIC: Final = "conformance-nothing"
TOPICS: Final[Mapping[str, int]] = {ORDERS: 3, CLICKS: 1}
"""The topics that scripts may declare, with their partitions."""

Protocols = Sequence[tuple[str, bytes]]
Offsets = Mapping[tuple[str, int], int | tuple[int, str | None]]
"""(topic, partition): offset, or offset and metadata."""


def subscription(*topics: str, user_data: bytes | None = None) -> bytes:
    """Encode a consumer's subscription (ConsumerProtocolSubscription v0)."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    tail = (-1).to_bytes(4, "big", signed=True) if user_data is None else len(user_data).to_bytes(4, "big") + user_data
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + tail


RANGE: Final[Protocols] = (("range", subscription(ORDERS)),)
OTHER: Final[Protocols] = (("range", subscription(CLICKS)),)
RANGE_FIRST: Final[Protocols] = (*RANGE, ("roundrobin", subscription(ORDERS)))
ROUNDROBIN_FIRST: Final[Protocols] = tuple(reversed(RANGE_FIRST))


class Run(Protocol):
    """The parts of a run that a member needs."""

    era: Era
    transcript: Transcript

    @property
    def group_id(self) -> str: ...

    def topic_id(self, topic: str) -> UUID: ...


class Reply:
    """A pending response. Awaiting it writes request and response into the transcript."""

    def __init__(self, transcript: Transcript, who: str, pending: Pending, requested: Mapping[str, Any]) -> None:
        self._transcript, self._who, self._pending, self._asked = transcript, who, pending, requested
        self.when_answered: Callable[[Fields], None] = lambda _: None

    def __await__(self) -> Generator[Any, None, Fields]:
        return self._take().__await__()

    async def _take(self) -> Fields:
        answer = await self.quietly()
        self.note(answer)
        return answer

    async def quietly(self) -> Fields:
        """The response, without a line in the transcript."""
        answer = await self._pending.get()
        self.when_answered(answer)
        return answer

    @property
    def is_answered(self) -> bool:
        return self._pending.is_answered

    def note(self, answered: Fields | str) -> None:
        """Write the request into the transcript, with its response or a remark."""
        self._transcript.exchanged(self._who, f"{self._pending.name} v{self._pending.version}", self._asked, answered)


class Member:
    """See the module. Created by `Stage.member`; `who` is its name in the transcript."""

    def __init__(
        self,
        run: Run,
        connection: Connection,
        who: str,
        instance: str | None = None,
        *,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> None:
        self.who, self.instance = who, instance
        self.protocols, self.protocol_type = protocols, protocol_type
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.leader_id = ""
        self.protocol_name: str | None = None
        self.members: list[Fields] = []
        self._run = run
        self.connection = connection

    @property
    def leads(self) -> bool:
        """True if its join response says so: only in v9 a leader learns that no assignment is needed."""
        return self.member_id == self.leader_id

    @property
    def me(self) -> tuple[str, str | None]:
        """An entry of a LeaveGroup."""
        return self.member_id, self.instance

    def ask(self, api: str, requested: Mapping[str, Any], *, version: int | None = None, **body: Any) -> Reply:
        """Send a request; the transcript shows `asked`; `version` overrides the era's."""
        version = version_in(self._run.era, api) if version is None else version
        return Reply(self._run.transcript, self.who, self.connection.send(api, version, **body), requested)

    def hang_up(self) -> None:
        """Close the connection."""
        self.connection.close()

    # ---- membership ----------------------------------------------------------------------------------

    def join(self, member_id: str | None = None, *, version: int | None = None, **other: Any) -> Reply:
        """JoinGroup with its id, or this one. `other` is remembered, like a new configuration."""
        member_id = self.member_id if member_id is None else member_id
        group_id = other.get("group_id", self._run.group_id)
        for name in other.keys() - {"group_id"}:
            assert hasattr(self, name), name
            setattr(self, name, other[name])
        reply = self.ask(
            "JoinGroup",
            {"member_id": member_id, **other},
            version=version,
            group_id=group_id,
            session_timeout=ms(self.session_ms),
            rebalance_timeout=ms(self.rebalance_ms),
            member_id=member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[{"name": name, "metadata": metadata} for name, metadata in self.protocols],
            reason="",
        )
        reply.when_answered = self._joined
        return reply

    async def enter(self) -> Reply:
        """A first join, up to the request that is parked: two steps for a dynamic member from v4 on (KIP-394)."""
        if self.instance is None and version_in(self._run.era, "JoinGroup") >= 4:
            answer = await self.join("")
            assert answer["error_code"] == 79, answer
            return self.join()
        return self.join("")

    def sync(self, assignments: Mapping[str, bytes] | None = None, **other: Any) -> Reply:
        """SyncGroup; by default a leader assigns to all members in its list. `other` replaces fields."""
        if assignments is None:
            assignments = {each["member_id"]: b"\x00\x00assigned" for each in self.members}
        fields: dict[str, Any] = {
            "group_id": self._run.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name or "range",
        }
        entries = [{"member_id": to, "assignment": what} for to, what in assignments.items()]
        return self.ask("SyncGroup", other, assignments=entries, **fields | other)

    def heartbeat(self, **other: Any) -> Reply:
        """Heartbeat; `other` replaces fields."""
        fields: dict[str, Any] = {
            "group_id": self._run.group_id,
            "generation_id": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return self.ask("Heartbeat", other, **fields | other)

    def leave(self, *members: tuple[str, str | None], group_id: str | None = None) -> Reply:
        """LeaveGroup of these, or of itself. Up to v2 only with the first one's member id."""
        return self._leave(members or (self.me,), {"members": [list(each) for each in members]}, group_id)

    def leave_nobody(self) -> Reply:
        """LeaveGroup with an empty list of members."""
        return self._leave((), {"members": []}, None)

    def _leave(
        self, members: Iterable[tuple[str, str | None]], requested: Mapping[str, Any], group_id: str | None
    ) -> Reply:
        entries = [
            {"member_id": member_id, "group_instance_id": instance, "reason": "done"} for member_id, instance in members
        ]
        return self.ask(
            "LeaveGroup",
            requested,
            group_id=self._run.group_id if group_id is None else group_id,
            member_id=entries[0]["member_id"] if entries else "",
            members=entries,
        )

    def _joined(self, answer: Fields) -> None:
        if answer["error_code"] in (0, 79):
            self.member_id = answer["member_id"]
            self._run.transcript.learn(self.member_id, self.who)
        if answer["error_code"] == 0:
            self.generation_id = answer["generation_id"]
            self.leader_id = answer["leader"]
            self.protocol_name = answer["protocol_name"]
            self.members = answer["members"]

    # ---- offsets ---------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, *, version: int | None = None, **other: Any) -> Reply:
        """OffsetCommit with its identity; `other` replaces fields."""
        offsets = {(ORDERS, 0): 7} if offsets is None else offsets
        fields: dict[str, Any] = {
            "group_id": self._run.group_id,
            "generation_id_or_member_epoch": self.generation_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "retention_time": ms(-1),
        }
        topics = [
            {
                "name": topic,
                "topic_id": self._run.topic_id(topic),
                "partitions": [_to_commit(partition, offsets[topic, partition]) for partition in partitions],
            }
            for topic, partitions in by_topic(offsets).items()
        ]
        request = {"offsets": [f"{topic}:{partition}={of}" for (topic, partition), of in offsets.items()], **other}
        return self.ask("OffsetCommit", request, version=version, topics=topics, **fields | other)

    def commit_as_nobody(self, offsets: Offsets | None = None, **other: Any) -> Reply:
        """OffsetCommit like tools and consumers without a group: no generation, no member."""
        nobody: dict[str, Any] = {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        return self.commit(offsets, **nobody | other)


def _to_commit(partition: int, offset: int | tuple[int, str | None]) -> Fields:
    number, metadata = offset if isinstance(offset, tuple) else (offset, "")
    return {
        "partition_index": partition,
        "committed_offset": number,
        "committed_leader_epoch": -1,
        "commit_timestamp": -1,
        "committed_metadata": metadata,
    }


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """(topic, partition) grouped by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics
