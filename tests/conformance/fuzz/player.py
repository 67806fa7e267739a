"""A schedule on one server: sequential requests, and their record.

It sends requests, waits until each is answered or parked, lets time pass, and hides free choices; `steps.py` builds the
requests.

After each request the group is described until the request has certainly been received. So the transcript has for each
request either its response or that it was parked, other responses that it caused, and the resulting group. Every wait
ends with a condition, never after a time that seems long enough.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import UUID, uuid4

from tests.conformance.fuzz.account import Account, Exchange
from tests.conformance.fuzz.actor import Actor, Request
from tests.conformance.fuzz.example import LIMIT_S, Astray, Seen, seen
from tests.conformance.fuzz.fuse import Fuse
from tests.conformance.fuzz.leadership import DEAD, Leadership, View
from tests.conformance.fuzz.schedule import Schedule
from tests.conformance.fuzz.turns import Turns
from tests.conformance.servers import Server
from tests.conformance.stage import NO_SUCH_ID
from tests.conformance.wire import CONDITION_WITHIN_S, Connection, Fields, decoded

CLIENT_ID: Final = "client"
"""The client id of all members: on Kafka a restarted static member keeps the old one (QK12)."""

PARKED: Final = ("JoinGroup", "SyncGroup")
ALONE: Final = ("Heartbeat", "OffsetCommit", "OffsetFetch", "OffsetDelete", "DescribeGroups", "ListGroups")
"""These requests are answered by themselves, and cause no other responses."""

CHECK_INTERVAL_S: Final = 0.1
AT_ONCE_S: Final = 0.002

SYNC_OF_A_LEAVER: Final = "(no member any more: QK2)"


class Player:
    """One run, recorded in `run` as an example for others; it may itself follow another's.

    A turn of `turns` is taken while requests are sent, so that few runs do so at a time.
    """

    def __init__(self, schedule: Schedule, server: Server, turns: Turns, example: Sequence[Seen] = ()) -> None:
        self.schedule, self.server = schedule, server
        self.run: list[Seen] = []
        self._example = iter(example)
        run = uuid4().hex[:12]
        self.group_id, self.other_group_id = f"fuzz-{run}", f"fuzz-{run}-other"
        words = {topic_id: f"(id of {topic})" for topic, topic_id in server.topic_ids.items()}
        words |= {self.group_id: "(group)", self.other_group_id: "(other group)"}
        self.account = Account(words)
        self.actors = [Actor(number, cast) for number, cast in enumerate(schedule.cast)]
        self.fuse = Fuse(patient=schedule.patient)
        self.leadership = Leadership()
        self.view = View(state=DEAD, members={})
        self._turns = turns
        self._has_turn = False
        self._seen = b""
        self._described: Fields = {}
        self._outstanding: list[Exchange] = []
        self._idle: list[Connection] = []
        self._connections: list[Connection] = []

    async def open(self) -> None:
        """Connect, wait until the server responds for the group, and take a turn."""
        await self._take_turn()
        self._watch = await self._connect()
        self._look_frame = self._watch.frame(
            "DescribeGroups", 5, groups=[self.group_id], include_authorized_operations=False
        )
        deadline = time.monotonic() + CONDITION_WITHIN_S
        while self._described.get("error_code") != 0:
            assert time.monotonic() < deadline, self._described
            await self._watch.ask("FindCoordinator", 2, key=self.group_id, key_type=0)
            await self._look()

    def close(self) -> None:
        """Disconnect, and give the turn back. Requests that are still parked are recorded."""
        for exchange in self._outstanding:
            self.account.note(exchange, "(no answer)")
        self.account.transcript.settle()
        for connection in self._connections:
            connection.close()
        self._give_turn()

    async def _take_turn(self, *, urgent: bool = False) -> None:
        await self._turns.take(urgent=urgent)
        self._has_turn = True

    def _give_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._turns.give()

    async def _connect(self) -> Connection:
        """A connection that the server is reading from: a completed connect does not mean that it was accepted."""
        connection = await Connection.open(self.server.bootstrap, client_id=CLIENT_ID)
        self._connections.append(connection)
        await connection.ask("FindCoordinator", 2, key=self.group_id, key_type=0)
        return connection

    # ---- parts of steps --------------------------------------------------------------------------------

    def begin(self, number: int, text: str) -> None:
        """A step begins."""
        self.account.begin(number, text, state=self.view.state)

    def topic_id(self, topic: str) -> UUID:
        """The id of a topic; for a topic that does not exist, an unused id."""
        return UUID(self.server.topic_ids.get(topic, NO_SUCH_ID))

    def is_parked(self, actor: Actor) -> bool:
        """Return whether this process's join or sync is pending."""
        return any(
            each.request.who == actor.name and each.request.life == actor.life and each.request.api != "Heartbeat"
            for each in self._outstanding
        )

    async def ask(self, *requests: Request) -> None:
        """Send requests, wait until each is answered or parked, and record the results."""
        if self.fuse.must_pass:
            await self.pass_time()
        if not self.fuse.is_lit:
            self._give_turn()
            await self._take_turn()
        is_blind = self.fuse.is_blind
        since_s = time.monotonic()
        for request in requests:
            await self._send(request)
            if not is_blind:
                await self._taken()
        if is_blind:
            await self._wait()
        else:
            self.fuse.asked(self.view, since_s=since_s)
        await self._write_down()

    async def pass_time(self) -> None:
        """Let time pass until no timer runs that could expire in this schedule."""
        if self.fuse.longest_ms(self.view):
            await self._wait()
            await self._write_down()

    async def initial_rebalance(self) -> None:
        """Let time pass until no initial rebalance waits for more members."""
        if self.fuse.is_initial:
            await self._wait(joined=True)
            await self._write_down()

    # ---- sending and waiting ---------------------------------------------------------------------------

    async def _send(self, request: Request) -> None:
        connection = self._idle.pop() if self._idle else await self._connect()
        pending = connection.send(request.api, request.version, **request.body)
        self._outstanding.append(Exchange(request, connection, pending, self.account.number))

    async def _taken(self) -> None:
        """Return when the last request has been received, and all responses that it caused have arrived.

        A first description may have overtaken the request. A second one shows the group after it, but may arrive before
        responses that were written at the same time. A third one does not.
        """
        last = self._outstanding[-1]
        if last.request.api not in PARKED:
            with suppress(TimeoutError):  # which is different from a response
                await last.pending.frame()
        looks = 1 if last.request.api in ALONE else 2
        for _ in range(looks):
            await self._look()
        if last.request.api in PARKED and not all(each.pending.is_answered for each in self._outstanding):
            await self._look()
        deadline = time.monotonic() + CONDITION_WITHIN_S
        while self.fuse.ends_at_once:
            assert time.monotonic() < deadline, self.view
            await asyncio.sleep(AT_ONCE_S)
            await self._look()
        await self._follow()

    async def _follow(self) -> None:
        """Wait until this run is as far as its example, if it has one."""
        wanted = next(self._example, None)
        deadline = time.monotonic() + LIMIT_S
        while wanted is not None and not wanted.is_followed_by(self._now()):
            if time.monotonic() > deadline:
                await self._write_down()
                raise Astray(f"it should be {wanted}, it is {self._now()}")
            await asyncio.sleep(AT_ONCE_S)
            await self._look()
        self.run.append(self._now())

    def _now(self) -> Seen:
        return seen(self._described, [each.answer is not None for each in self._outstanding])

    async def _wait(self, *, joined: bool = False) -> None:
        """Wait until no timer runs, or nothing has happened for so long that none can be running.

        `joined`: until an initial rebalance is over, other timers may be running then.
        """
        self._give_turn()
        last = looked = since_s = time.monotonic()
        while longest_ms := self.fuse.longest_ms(self.view):
            if (time.monotonic() - last) * 1_000 >= longest_ms or (joined and not self.fuse.is_initial):
                break
            since_s = looked
            await asyncio.sleep(CHECK_INTERVAL_S)
            looked = time.monotonic()
            if await self._look():
                last = time.monotonic()
        await self._take_turn(urgent=joined)
        await self._look()
        await self._look()
        await self._follow()
        self.fuse.passed(self.view, since_s=since_s if joined else None)

    async def _look(self) -> bool:
        """Describe the group and read the available responses; return whether anything is new."""
        seen = await self._watch.send_frame("DescribeGroups", 5, self._look_frame).frame()
        is_new = seen[4:] != self._seen
        if is_new:
            self._seen = seen[4:]
            self._described = decoded("DescribeGroups", 5, seen)["groups"][0]
            self.view = View.of(self._described)
            self.leadership.looked(self.view)
            self.fuse.looked(self.view)
        for exchange in self._outstanding:
            if exchange.answer is None and exchange.pending.is_answered:
                exchange.answer = self._of_this_run(await exchange.pending.get())
                self.fuse.told(exchange.request, exchange.answer)
                if exchange.request.api == "JoinGroup":
                    self.leadership.answered(exchange.answer)
                is_new = True
        return is_new

    def _of_this_run(self, answer: Fields) -> Fields:
        """ListGroups returns all groups of the server."""
        if "groups" in answer:
            mine = (self.group_id, self.other_group_id)
            answer["groups"] = [each for each in answer["groups"] if each["group_id"] in mine]
        return answer

    # ---- the record ------------------------------------------------------------------------------------

    async def _write_down(self) -> None:
        answered = [each for each in self._outstanding if each.answer is not None]
        joined = self.leadership.new_generation(
            [each.answer for each in answered if each.request.api == "JoinGroup" and each.answer is not None]
        )
        is_free = bool(joined) and self.leadership.is_free(joined)
        self.leadership.looked(self.view)
        for exchange in [*self._outstanding]:
            self._take(exchange, is_free=is_free and exchange.answer in joined)
        if joined:
            self.account.tally["new generations", 0] += 1
        if is_free:
            self.account.note_free(joined)
        self.account.note_view(self._described)
        if is_free:
            await self._dissolve()

    def _take(self, exchange: Exchange, *, is_free: bool) -> None:
        request, answer = exchange.request, exchange.answer
        if exchange.was_parked and self._is_of_a_leaver(request, answer):
            self.account.note(exchange, SYNC_OF_A_LEAVER)
            self._outstanding.remove(exchange)
            return
        if answer is None:
            if not exchange.was_parked:
                self.account.note(exchange, "(parked)")
                exchange.was_parked = True
            return
        self._outstanding.remove(exchange)
        self._idle.append(exchange.connection)
        self.account.count(request.api, answer)
        actor = next((actor for actor in self.actors if actor.name == request.who), None)
        if actor is not None:
            if request.api == "JoinGroup":
                self.account.name(actor, answer)
            actor.told(request, answer)
        self.account.note(
            exchange, {**answer, "leader": "(one of them)", "members": "(known to one)"} if is_free else answer
        )

    def _is_of_a_leaver(self, request: Request, answer: Fields | None) -> bool:
        """Kafka never answers a leaver's parked sync; Muster answers UNKNOWN_MEMBER_ID (QK2, SG18)."""
        has_gone = request.api == "SyncGroup" and request.body["member_id"] not in self.view.members
        return has_gone and (answer is None or answer["error_code"] == 25)

    async def _dissolve(self) -> None:
        """Have all leave: what follows would depend on the leader."""
        leavers = {*self.view.members}
        await self._remove(leavers)
        for actor in self.actors:
            if actor.member_id in leavers:
                actor.forget()

    async def tidy(self) -> None:
        """Remove members without an owner: those that joined under another's identity, or pending ids that were not
        used.

        A member that joined and does not know its id yet has an owner.
        """
        instances = {actor.instance for actor in self.actors}
        known = {
            each
            for each, instance in self.view.members.items()
            if self.account.is_named(each) or instance not in instances
        }
        await self._remove((known | self.account.pending) - {actor.member_id for actor in self.actors})

    async def _remove(self, leavers: set[str]) -> None:
        self.account.pending -= leavers
        in_order = self.account.in_order(leavers)
        entries = [{"member_id": each, "group_instance_id": None, "reason": None} for each in in_order]
        body = {"group_id": self.group_id, "member_id": "", "members": entries}
        await self.ask(self.by_admin("LeaveGroup", 5, body, members=in_order))

    def by_admin(self, api: str, version: int, body: Fields, **requested: Any) -> Request:
        """A request on behalf of no member."""
        return Request(who="admin", api=api, version=version, body=body, asked=requested, brief=False, life=-1)
