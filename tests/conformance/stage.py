"""One run of a script on one server: its group, its members, and the transcript.

It adds members, sends administrators' requests, waits for conditions, and lets a script declare how the two servers may
or do differ.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, Final
from uuid import UUID, uuid4

from tests.conformance.eras import Era, version_in
from tests.conformance.member import Member, Reply, by_topic
from tests.conformance.servers import Server
from tests.conformance.transcript import Transcript
from tests.conformance.wire import CHECK_INTERVAL_S, CONDITION_WITHIN_S, LOOK_AT_LAST_EVERY_S, Connection, Fields

NO_SUCH_ID: Final = "00000000-0000-4000-8000-000000000000"

Expected = Mapping[str, Any] | None
"""Fields of a response; None: there is none, even at the end of the script."""


class Stage:
    """See the module. Created by `test_conformance.py`, one for each server and era."""

    def __init__(self, server: Server, era: Era) -> None:
        self.server, self.era = server, era
        self._run = uuid4().hex[:12]
        self.group_id = f"conformance-{self._run}"
        words = {topic_id: f"(id of {topic})" for topic, topic_id in server.topic_ids.items()}
        words |= {self.group_id: "(group)", server.bootstrap.rpartition(":")[2]: "(port)"}
        self.transcript = Transcript(words=words)
        self._connections: list[Connection] = []
        self._never_answered: list[Reply] = []
        self._watch: Connection | None = None

    # ---- members -------------------------------------------------------------------------------------

    async def member(
        self, who: str, instance: str | None = None, *, client_id: str = "client", **settings: Any
    ) -> Member:
        """A new process with its own connection; `settings` are those of `Member`."""
        return Member(self, await self._connect(client_id), who, instance, **settings)

    async def same(self, member: Member, who: str, *, client_id: str = "client") -> Member:
        """The same process on a new connection, with its ids and state."""
        same = copy(member)
        same.who, same.connection = who, await self._connect(client_id)
        return same

    async def reconnect(self, *members: Member) -> None:
        """After a restart of the server: the same processes on new connections, once it responds for the group."""
        self._watch = None
        for member in members:
            member.connection = await self._connect("client")
        await self.ready()

    async def _connect(self, client_id: str) -> Connection:
        connection = await Connection.open(self.server.bootstrap, client_id=client_id)
        self._connections.append(connection)
        return connection

    async def members(self, *whos: str, static: bool = False, **settings: Any) -> list[Member]:
        """New processes; a static one has its name as instance id."""
        return [await self.member(who, who if static else None, **settings) for who in whos]

    async def stable(self, *whos: str, static: bool = False, **settings: Any) -> list[Member]:
        """A stable group of new members; the first one leads."""
        members = await self.members(*whos, static=static, **settings)
        await self.form(*members)
        return members

    async def form(self, first: Member, *others: Member) -> None:
        """Have them join an empty group, and sync.

        The first one alone forms the first generation, so that the others arrive in a join phase that waits for it,
        however slow this machine is: an initial rebalance does not wait.
        """
        await self.complete([first], [await first.enter()])
        if others:
            joins = []
            for member in others:
                joins.append(await member.enter())
                await self.until(members=1 + len(joins), state="PreparingRebalance")
            await self.complete([first, *others], [first.join(), *joins])

    async def complete(self, members: Sequence[Member], joins: Sequence[Reply]) -> None:
        """Wait for the responses to these joins, then sync all."""
        for join in joins:
            await join
        for sync in [member.sync() for member in members]:
            await sync

    async def rejoin(self, *members: Member) -> None:
        """Have members of a rebalancing group rejoin and sync."""
        await self.complete(members, [member.join() for member in members])

    async def rejoin_all(self, leader: Member, *followers: Member) -> None:
        """Have the leader ask for a rebalance, if there is none, and all rejoin."""
        first = leader.join()
        await self.until(state="PreparingRebalance")
        await self.complete([leader, *followers], [first, *(member.join() for member in followers)])

    def group(self, name: str) -> str:
        """The id of another group of this run."""
        group_id = f"conformance-{self._run}-{name}"
        self.transcript.know(group_id, f"(group {name})")
        return group_id

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic; for a topic that does not exist, an unused id."""
        return UUID(self.server.topic_ids.get(topic, NO_SUCH_ID))

    # ---- administrators' requests ------------------------------------------------------------------------

    async def describe(self, *group_ids: str, **options: Any) -> Fields:
        """DescribeGroups of the group, or of these."""
        groups = list(group_ids or (self.group_id,))
        body = {"include_authorized_operations": False} | options
        return await self._ask("DescribeGroups", {"groups": groups, **options}, groups=groups, **body)

    async def list(self, *group_ids: str, **filters: Any) -> Fields:
        """ListGroups; the transcript shows the group, or these."""
        mine = set(group_ids or (self.group_id,))
        reply = await self._send("ListGroups", filters, **{"states_filter": (), "types_filter": ()} | filters)
        answer = await reply.quietly()
        answer["groups"] = [group for group in answer["groups"] if group["group_id"] in mine]
        reply.note(answer)
        return answer

    async def delete(self, *group_ids: str) -> Fields:
        """DeleteGroups of the group, or of these."""
        groups = list(group_ids or (self.group_id,))
        return await self._ask("DeleteGroups", {"groups": groups}, groups_names=groups)

    async def find_coordinator(self, *keys: str, key_type: int = 0) -> Fields:
        """FindCoordinator of the group, or of these keys; below v4 of the first one."""
        wanted = keys or (self.group_id,)
        return await self._ask(
            "FindCoordinator",
            {"keys": list(wanted), "key_type": key_type},
            key=wanted[0],
            coordinator_keys=wanted,
            key_type=key_type,
        )

    async def fetch_offsets(
        self,
        *partitions: tuple[str, int],
        group_ids: Sequence[str] = (),
        every: bool = False,
        require_stable: bool = False,
        member: tuple[str | None, int] = (None, -1),
        version: int | None = None,
    ) -> Fields:
        """OffsetFetch of these partitions, or of all committed ones (`every`); from v8 on of several groups.

        `member`: the sender's id and epoch (v9 and up).
        """
        groups = list(group_ids or (self.group_id,))
        topics = None if every else [self._to_fetch(*each) for each in by_topic(partitions).items()]
        request = {"groups": groups, "partitions": "all" if every else [f"{t}:{p}" for t, p in partitions]}
        return await self._ask(
            "OffsetFetch",
            request,
            version=version,
            group_id=groups[0],
            topics=topics,
            groups=[
                {"group_id": group_id, "topics": topics, "member_id": member[0], "member_epoch": member[1]}
                for group_id in groups
            ],
            require_stable=require_stable,
        )

    def _to_fetch(self, topic: str, partitions: Sequence[int]) -> Fields:
        return {"name": topic, "topic_id": self.topic_id(topic), "partition_indexes": tuple(partitions)}

    async def delete_offsets(self, *partitions: tuple[str, int], group_id: str | None = None) -> Fields:
        """OffsetDelete."""
        topics = [
            {"name": topic, "partitions": [{"partition_index": each} for each in indexes]}
            for topic, indexes in by_topic(partitions).items()
        ]
        request = {"partitions": [f"{t}:{p}" for t, p in partitions]}
        group_id = self.group_id if group_id is None else group_id
        return await self._ask("OffsetDelete", request, group_id=group_id, topics=topics)

    async def _ask(self, api: str, requested: Mapping[str, Any], *, version: int | None = None, **body: Any) -> Fields:
        return await (await self._send(api, requested, version=version, **body))

    async def _send(self, api: str, requested: Mapping[str, Any], *, version: int | None = None, **body: Any) -> Reply:
        watch = await self._watching()
        version = version_in(self.era, api) if version is None else version
        return Reply(self.transcript, "admin", watch.send(api, version, **body), requested)

    async def _watching(self) -> Connection:
        if self._watch is None:
            self._watch = await self._connect("admin")
        return self._watch

    # ---- waiting -----------------------------------------------------------------------------------------

    async def until(
        self,
        *,
        state: str | None = None,
        members: int | None = None,
        group_id: str | None = None,
    ) -> Fields:
        """Describe the group, outside the transcript, until the condition holds. Raises `TimeoutError` with the last
        state.

        The interval grows: two dozen scripts that wait for time to pass would keep both servers busy.
        """
        watch = await self._watching()
        deadline, look_in_s = time.monotonic() + CONDITION_WITHIN_S, CHECK_INTERVAL_S
        while True:
            group = await self._described(watch, group_id)
            if state in (None, group["group_state"]) and members in (None, len(group["members"])):
                return group
            if time.monotonic() >= deadline:
                raise TimeoutError(f"not within {CONDITION_WITHIN_S} s: {state=} {members=}; the group was {group}")
            await asyncio.sleep(look_in_s)
            look_in_s = min(1.5 * look_in_s, LOOK_AT_LAST_EVERY_S)

    async def _described(self, watch: Connection, group_id: str | None = None) -> Fields:
        request = {"groups": [group_id or self.group_id], "include_authorized_operations": False}
        group: Fields = (await watch.ask("DescribeGroups", 5, **request))["groups"][0]
        return group

    async def heard(self) -> None:
        """Give the server time to receive the last request, where parking it is not visible.

        It was sent before these requests, and each of them is answered: a server that handles requests in order has
        received it by then. Kafka's several threads guarantee no order, so they are sent more than once.
        """
        watch = await self._watching()
        for _ in range(3):
            await self._described(watch)

    async def ready(self) -> None:
        """Wait until the server responds for the group, and for all others."""
        watch = await self._watching()
        deadline = time.monotonic() + CONDITION_WITHIN_S
        while True:
            found = await watch.ask("FindCoordinator", 2, key=self.group_id, key_type=0)
            group = await self._described(watch)
            listed = await watch.ask("ListGroups", 0)
            if found["error_code"] == group["error_code"] == listed["error_code"] == 0:
                return
            assert time.monotonic() < deadline, f"{found} {group} {listed}"
            await asyncio.sleep(CHECK_INTERVAL_S)

    def waited(self, since_s: float, *, unit_ms: int) -> int:
        """The number of whole units of time since then (`time.monotonic`); up to a twentieth less counts as whole.

        Two servers are never equally fast; a unit has to be long enough for both.
        """
        return int((time.monotonic() - since_s) * 1_000 / unit_ms + 0.05)

    def note_waited(self, since_s: float, *, unit_ms: int) -> None:
        """Write that into the transcript."""
        self.transcript.note(f"(after {self.waited(since_s, unit_ms=unit_ms)} x {unit_ms} ms)")

    # ---- free choices and differences --------------------------------------------------------------------

    def rename(self, **members: Member) -> None:
        """From here on these members are named by their role, which the server was free to choose."""
        self.transcript.rename({member.who: name for name, member in members.items()})
        for name, member in members.items():
            member.who = name

    def never_answered(self, reply: Reply) -> None:
        """This request is never answered: at the end of the script there is still no response."""
        self._never_answered.append(reply)
        reply.note("(never answered)")

    async def differs(self, reason: str, reply: Reply, *, kafka: Expected, muster: Expected) -> None:
        """Muster differs from Kafka, for this reason: each is checked against its own response."""
        expected = kafka if self.server.is_kafka else muster
        if expected is None:
            self._never_answered.append(reply)
        else:
            answer = await reply.quietly()
            got = {key: answer[key] for key in expected}
            assert got == expected, (reason, got, expected)
        reply.note(f"(differs: {reason})")

    def expect_difference(self, reason: str, *, kafka: Any, muster: Any, got: Any) -> None:
        """Like `differs`, for a value from responses."""
        expected = kafka if self.server.is_kafka else muster
        assert got == expected, (reason, got, expected)
        self.transcript.note(f"(differs: {reason})")

    def end(self) -> None:
        """The script is over: check that the unanswered requests were not answered."""
        for reply in self._never_answered:
            assert not reply.is_answered, "answered after all"

    def hang_up(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()
