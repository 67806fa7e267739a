"""Detecting whether a group's upstream coordinator responds, before its members' sessions end; in virtual time."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.static.primitive import i32Timedelta
from structlog.testing import capture_logs

from muster.coordinator.group.extensions import Unheard
from muster.coordinator.upstream.coordinators import Heard, HeardFrom
from muster.coordinator.upstream.errors import BrokerNotTrusted, UpstreamRefused
from muster.coordinator.upstream.reachability import (
    ANSWER_TIMEOUT_MS,
    BACK,
    GROUPS_AT_ONCE,
    HAS_MOVED,
    WAIT,
    Reachability,
)
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.errors import OwnShortage, TryAgain
from tests.coordinator.upstream.fake_broker import heartbeat
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.coordinator.upstream.stage import unexpected
from tests.coordinator.upstream.test_link import error_of
from tests.coordinator.upstream.test_outages import cluster_of_three, linked
from tests.faults.network import Connection
from tests.faults.process import seconds, story
from tests.simulation.virtual_time import VirtualClock, VirtualTimeLoop
from tests.waiting import until

FIND_COORDINATOR, HEARTBEAT, DESCRIBE_GROUPS = 10, 12, 15


class Outages:
    """Keyed by group: when its members were unreachable last, and when that was reported; `since`: when it started."""

    def __init__(self, reachability: Reachability) -> None:
        self._reachability = reachability
        self.of: dict[str, tuple[int | None, float]] = {}
        self.since: dict[str, int] = {}

    @property
    def questions(self) -> list[asyncio.Task[None]]:
        return list(self._reachability._tasks.running)

    async def close(self) -> None:
        await self._reachability.close()

    def ask(self, group_id: str) -> None:
        def tell(away: Unheard | None) -> None:
            assert group_id not in self.of
            self.of[group_id] = None if away is None else away[1], seconds()
            self.since[group_id] = 0 if away is None else away[0]

        self._reachability.ask_about_silence(GroupId(group_id), tell)


def new_reachability(link: UpstreamLink, *, give_up: Callable[[Exception], None] = unexpected) -> Reachability:
    """Create one in virtual time."""
    return Reachability(link, give_up=give_up, monotonic_ms=VirtualClock().monotonic_ms)


@asynccontextmanager
async def asking(*brokers: SimulatedBroker) -> AsyncIterator[tuple[UpstreamLink, Outages]]:
    async with linked(*brokers) as link:
        reachability = new_reachability(link)
        yield link, Outages(reachability)
        await reachability.close()


@story
async def test_a_coordinator_that_responds_has_heard_the_members() -> None:
    async with asking(SimulatedBroker(1)) as (_, reported):
        began_s = seconds()
        reported.ask("g")
        await until(lambda: reported.of)
        assert reported.of["g"][0] is None
        assert reported.of["g"][1] - began_s < 1


@story
async def test_a_hanging_coordinator_is_queried_until_it_responds() -> None:
    """Kafka's next coordinator gives all members a full session; so does Muster when it is back, within 2 s."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        broker.is_hung = True
        with capture_logs() as lines:
            reported.ask("g")
            await asyncio.sleep(600)
            assert reported.of == {}
            broker.is_hung = False
            broker.leave()
            broker.come_back()
            back_s = seconds()
            await until(lambda: reported.of)
        assert reported.of["g"][0] == round(1000 * reported.of["g"][1])
        assert reported.of["g"][1] - back_s < 4
        waits = [line for line in lines if line["event"] == WAIT]
        assert len(waits) in {10, 11}  # one a minute
        assert {line["group_id"] for line in waits} == {"g"}
        assert "answer" in waits[0]["reason"]
        assert (lines[-1]["event"], lines[-1]["groups"]) == (BACK, 1)


@story
async def test_a_hanging_coordinator_is_unreachable_since_its_last_response() -> None:
    """Heard by a client or by Muster; when a coordinator started to load its log is unknown."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (link, reported):
        await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
        asked_ms = VirtualClock().monotonic_ms()
        for heard_ms in (asked_ms, asked_ms + 60_000):
            await asyncio.sleep(heard_ms / 1000 + 5 - seconds())
            link.heard[1].answered(heard_ms)
            reported.of.clear()
            broker.is_hung = True
            with capture_logs():
                reported.ask("g")
                await asyncio.sleep(20)
                broker.is_hung = False
                broker.leave()
                broker.come_back()
                await until(lambda: reported.of)
            assert reported.since["g"] == heard_ms
        reported.of.clear()
        broker.group_error = ErrorCode.coordinator_load_in_progress
        with capture_logs():
            reported.ask("g")
            await asyncio.sleep(10)
            broker.group_error = ErrorCode.none
            await until(lambda: reported.of)
        assert reported.since["g"] == 0


@story
async def test_a_broker_no_client_reached_is_unreachable_since_its_last_response() -> None:
    """The number of clients that fail to connect does not matter; if it was heard in between, the time is later."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (link, _):
        assert await link.coordinator("g") == 1
        link.heard[1].answered(VirtualClock().monotonic_ms())
        heard_ms = VirtualClock().monotonic_ms()
        for _ in range(3):
            await asyncio.sleep(2)
            link.broker_not_reached(1)
        assert link.last_coordinator_outage("g") == (heard_ms, heard_ms + 6_000)
        await asyncio.sleep(2)
        link.heard[1].answered(heard_ms + 7_000)
        link.broker_not_reached(1)
        assert link.last_coordinator_outage("g") == (heard_ms + 7_000, heard_ms + 8_000)


@story
async def test_a_loading_coordinator_has_not_heard_the_members() -> None:
    """After a move clients get COORDINATOR_LOAD_IN_PROGRESS."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        broker.group_error = ErrorCode.coordinator_load_in_progress
        with capture_logs():
            reported.ask("g")
            await asyncio.sleep(60)
            assert reported.of == {}
            broker.group_error = ErrorCode.none
            await until(lambda: reported.of)
        assert reported.of["g"][0] == round(1000 * reported.of["g"][1])


@story
async def test_a_coordinator_that_answers_clients_meanwhile_hears_them() -> None:
    """It may be slow, or accept no more connections; one that responded before may hang since."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        heard, reachability = link.heard, new_reachability(link)
        outages = Outages(reachability)
        assert await link.coordinator("g") == 1
        heard[1].answered(VirtualClock().monotonic_ms())
        broker.is_hung = True
        with capture_logs():
            outages.ask("g")
            await asyncio.sleep(60)
            assert outages.of == {}
            while not outages.of:
                heard[1].answered(VirtualClock().monotonic_ms())
                await asyncio.sleep(0.1)
        assert outages.of["g"][0] == round(1000 * outages.of["g"][1])
        await reachability.close()


@story
async def test_a_hanging_coordinator_does_not_hear_members_that_get_its_earlier_responses() -> None:
    """Its kernel keeps sending earlier responses as long as clients read them."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        heard, reachability = link.heard, new_reachability(link)
        outages = Outages(reachability)
        assert await link.coordinator("g") == 1
        asked_before_ms = VirtualClock().monotonic_ms()
        broker.is_hung = True
        with capture_logs():
            outages.ask("g")
            for later_ms in range(600):
                heard[1].answered(asked_before_ms - 600 + later_ms)
                await asyncio.sleep(0.1)
        assert outages.of == {}
        await reachability.close()


class FullBroker(SimulatedBroker):
    """Disconnects new clients when it is full, and serves the connected ones."""

    is_full = False

    def accepted(self, connection: Connection) -> None:
        super().accepted(connection)
        if self.is_full:
            connection.cut()


@story
async def test_a_coordinator_that_accepts_no_connections_is_queried_on_an_existing_one() -> None:
    """Clients share our address: one of them may have all connections that the broker allows for it."""
    broker = FullBroker(1)
    async with linked(broker) as link:
        reachability = new_reachability(link)
        outages = Outages(reachability)
        reachability.keep_open()
        await asyncio.sleep(1)
        await link.coordinator("g")
        broker.is_full = True
        await asyncio.sleep(3_600)
        outages.ask("g")
        began_s = seconds()
        await until(lambda: outages.of)
        assert (outages.of["g"][0], outages.of["g"][1] - began_s < 1) == (None, True)
        await reachability.close()


@story
async def test_a_coordinator_that_disconnects_hears_members_it_answers_meanwhile() -> None:
    """It is full. If it responds to none within the request's time it is unreachable, wherever the connections went."""
    broker = FullBroker(1)
    async with asking(broker) as (link, reported):
        await link.coordinator("g")
        broker.is_full = True
        reported.ask("g")
        await asyncio.sleep(1)
        link.heard[1].answered(VirtualClock().monotonic_ms())
        await until(lambda: reported.of)
        assert reported.of["g"][0] is None
        reported.of.clear()
        with capture_logs() as lines:
            reported.ask("g")
            await asyncio.sleep(60)
        assert reported.of == {}
        assert lines[0]["event"] == WAIT


@story
async def test_our_own_stall_is_no_silence_of_the_coordinator() -> None:
    """A request's time only runs while our loop turns; after that the broker counts as unreachable as usual."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (link, reported):
        await link.coordinator("g")
        broker.is_hung = True
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        with capture_logs() as lines:
            reported.ask("g")
            await asyncio.sleep(0.5)
            loop.advance(30)
            broker.is_hung = False
            await until(lambda: reported.of)
            assert (reported.of["g"][0], lines) == (None, [])
            broker.is_hung = True
            reported.of.clear()
            reported.ask("g")
            for _ in range(5):
                await asyncio.sleep(0.5)
                loop.advance(5)
            await asyncio.sleep(3)
        assert (reported.of, [line["event"] for line in lines]) == ({}, [WAIT])


@story
async def test_nothing_is_queried_after_closing() -> None:
    """No request that could be continued is left either."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (link, reported):
        await link.coordinator("g")
        broker.is_hung = True
        reported.ask("g")
        await asyncio.sleep(1)
        questions = reported.questions
        assert questions
        await reported.close()
        assert all(question.done() for question in questions)
        assert reported.of == {}


@story
async def test_other_errors_give_no_result_for_the_members() -> None:
    """Muster may lack a permission that the members have."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        broker.group_error = ErrorCode.group_authorization_failed
        reported.ask("g")
        await until(lambda: reported.of)
        assert reported.of["g"][0] is None


@story
async def test_a_broker_that_hangs_delays_no_group_of_another() -> None:
    brokers = cluster_of_three()
    async with asking(*brokers) as (link, reported):
        assert await link.coordinator("there") == 1
        for broker in brokers:
            broker.coordinator = 2
        brokers[0].is_hung = True
        with capture_logs():
            reported.ask("there")
            began_s = seconds()
            reported.ask("here")
            await until(lambda: "here" in reported.of)
            assert reported.of["here"][1] - began_s < ANSWER_TIMEOUT_MS / 1000


@story
async def test_many_groups_are_one_query() -> None:
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        groups = [f"g{number}" for number in range(5 * GROUPS_AT_ONCE)]
        for each in groups:
            reported.ask(each)
        await until(lambda: len(reported.of) == len(groups))
        assert {heard_since_ms for heard_since_ms, _ in reported.of.values()} == {None}
        assert broker.asked.count(DESCRIBE_GROUPS) < len(groups) / 10


@story
async def test_a_hanging_coordinator_of_thousands_of_groups_is_queried_about_a_few() -> None:
    """About one request a second, however many groups wait for it."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        groups = [f"g{number}" for number in range(50 * GROUPS_AT_ONCE)]
        broker.silent_at = DESCRIBE_GROUPS
        with capture_logs() as lines:
            for each in groups:
                reported.ask(each)
            await asyncio.sleep(60)
            assert reported.of == {}
            assert broker.asked.count(DESCRIBE_GROUPS) < 60
            assert broker.asked.count(FIND_COORDINATOR) < 60 + len(groups) / GROUPS_AT_ONCE
            broker.silent_at = None
            back_ms = VirtualClock().monotonic_ms()
            await until(lambda: len(reported.of) == len(groups))
        assert seconds() - back_ms / 1000 < 10
        assert min(heard_since_ms or 0 for heard_since_ms, _ in reported.of.values()) >= back_ms
        assert [(line["event"], line["groups"]) for line in lines][-1] == (BACK, len(groups))


@story
async def test_groups_of_a_lost_coordinator_are_queried_at_its_successor() -> None:
    brokers = cluster_of_three()
    async with asking(*brokers) as (link, reported):
        groups = [f"g{number}" for number in range(5 * GROUPS_AT_ONCE)]
        await link.coordinators(groups)
        brokers[0].is_hung = True
        with capture_logs() as lines:
            for each in groups:
                reported.ask(each)
            await asyncio.sleep(30)
            for broker in brokers:
                broker.coordinator = 2
            await until(lambda: len(reported.of) == len(groups))
        assert all(heard_since_ms is not None for heard_since_ms, _ in reported.of.values())
        assert (lines[-1]["event"], lines[-1]["groups"]) == (BACK, len(groups))


class PartlyLed(SimulatedBroker):
    """Does not know the coordinator of one group of fifty, as when an offsets partition has no leader."""

    def _body(self, key: int, request: Any) -> dict[str, Any]:
        body = super()._body(key, request)
        for each in body.get("coordinators", ()):
            if each["key"].endswith(("00", "50")):
                each["error_code"] = ErrorCode.coordinator_not_available
        return body


@story
async def test_groups_without_a_known_coordinator_delay_no_others_of_a_lost_broker() -> None:
    """The number of such groups does not matter: it is asked about a few at a time, with a pause only if all of those
    are its own.
    """
    brokers: list[SimulatedBroker] = [SimulatedBroker(1), PartlyLed(2)]
    for broker in brokers:
        broker.node_at, broker.others_at, broker.coordinator = brokers[0].address, [brokers[1].address], 2
    async with asking(*brokers) as (link, reported):
        groups = [f"g{number:04}" for number in range(20 * GROUPS_AT_ONCE)]
        for each in groups:
            link._coordinators.learn(each, 1)
        brokers[0].leave()
        with capture_logs():
            began_s = seconds()
            for each in groups:
                reported.ask(each)
            await until(lambda: len(reported.of) == len(groups) * 49 // 50, within_s=60)
        assert seconds() - began_s < 5


@story
async def test_a_coordinator_that_was_unreachable_and_returned_has_not_heard_the_members_meanwhile() -> None:
    """Noticed by a request for the group, or by a client that could not connect."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (link, reported):
        broker.leave()
        with capture_logs(), pytest.raises(TryAgain):
            await link.ask_coordinator("asked", heartbeat("asked"), HeartbeatResponse, error_of=error_of, retry_ms=0)
        away_ms = VirtualClock().monotonic_ms()
        broker.come_back()
        await asyncio.sleep(2)
        reported.ask("asked")
        await until(lambda: reported.of)
        assert reported.of["asked"][0] == away_ms
        link.broker_not_reached(1)
        found_nobody_ms = VirtualClock().monotonic_ms()
        await asyncio.sleep(2)
        reported.ask("other")
        await until(lambda: "other" in reported.of)
        assert reported.of["other"][0] == found_nobody_ms


@story
async def test_a_coordinator_that_has_moved_is_found_and_was_not_unreachable() -> None:
    brokers = cluster_of_three()
    async with asking(*brokers) as (link, reported):
        assert await link.coordinator("g") == 1
        brokers[0].group_error = ErrorCode.not_coordinator
        for broker in brokers:
            broker.coordinator = 2
        reported.ask("g")
        await until(lambda: reported.of)
        assert reported.of["g"][0] is None


@story
async def test_a_coordinator_that_answers_not_coordinator_was_not_unreachable() -> None:
    """It may have moved; a coordinator that still loads the group was unavailable."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        for group_id, error in (("moved", ErrorCode.not_coordinator), ("read", ErrorCode.coordinator_load_in_progress)):
            broker.changed_answers[HEARTBEAT] = partial(_with_error, error)
            with pytest.raises(TryAgain):
                await link.ask_coordinator(
                    group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=0
                )
        assert link.last_coordinator_outage("moved") is None
        assert link.last_coordinator_outage("read") is not None


def _with_error(error: ErrorCode, answer: bytes) -> bytes:
    """Heartbeat v4."""
    return answer[:9] + struct.pack(">h", error.value) + answer[11:]


@story
async def test_a_coordinator_that_denies_it_and_is_named_again_is_queried_once_a_second() -> None:
    """The brokers disagree; neither is asked without a pause."""
    broker = SimulatedBroker(1)
    async with asking(broker) as (_, reported):
        broker.group_error = ErrorCode.not_coordinator
        with capture_logs() as lines:
            reported.ask("g")
            await asyncio.sleep(60)
            assert reported.of == {}
            assert broker.asked.count(DESCRIBE_GROUPS) <= 2 * 60 + 2
            broker.group_error = ErrorCode.none
            await until(lambda: reported.of)
        assert reported.of["g"][0] == round(1000 * reported.of["g"][1])
        assert lines[0]["reason"] == HAS_MOVED


@story
async def test_groups_that_wait_for_another_broker_by_now_hide_no_return() -> None:
    """One group waits without a response; then its coordinator is known, and unreachable. Another one is heard
    again.
    """
    brokers = cluster_of_three()
    async with asking(*brokers) as (_, reported):
        with capture_logs() as lines:
            _leave(*brokers)
            reported.ask("moves on")
            await asyncio.sleep(20)
            _come_back(*brokers[1:])
            await asyncio.sleep(20)
            _leave(*brokers[1:])
            reported.ask("stays")
            await asyncio.sleep(20)
            _come_back(*brokers)
            await until(lambda: len(reported.of) == 2)
        assert reported.of.keys() == {"moves on", "stays"}
        assert [line["groups"] for line in lines if line["event"] == BACK] == [1, 1]


def _leave(*brokers: SimulatedBroker) -> None:
    for broker in brokers:
        broker.leave()


def _come_back(*brokers: SimulatedBroker) -> None:
    for broker in brokers:
        broker.come_back()


@story
async def test_a_broker_that_responds_about_other_groups_is_queried_again() -> None:
    """Its response is not used, as if there were none, and the process continues."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        bugs: list[Exception] = []
        reachability = new_reachability(link, give_up=bugs.append)
        outages = Outages(reachability)
        for api_key in (FIND_COORDINATOR, DESCRIBE_GROUPS):
            broker.changed_answers[api_key] = lambda answer: answer.replace(b"gg", b"xx")
        with capture_logs() as lines:
            outages.ask("gg")
            await asyncio.sleep(30)
            assert (outages.of, bugs, link.known_coordinator("xx")) == ({}, [], None)
            assert "is not about the coordinator keys that were asked about: 'gg' is missing" in lines[-1]["reason"]
            del broker.changed_answers[FIND_COORDINATOR]
            await asyncio.sleep(30)
            assert (outages.of, bugs) == ({}, [])
            broker.changed_answers.clear()
            await until(lambda: outages.of)
        assert outages.of["gg"][0] == round(1000 * outages.of["gg"][1])
        await reachability.close()


@story
async def test_a_repeated_query_of_a_group_is_answered_alone() -> None:
    """A partition that was taken over again has other members to expire than before."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        reachability = new_reachability(link)
        broker.is_hung = True
        reported: list[str] = []
        with capture_logs():
            for each in ("former", "present"):
                reachability.ask_about_silence(GroupId("g"), partial(_note, reported, each))
                await asyncio.sleep(10)
            broker.is_hung = False
            broker.leave()
            broker.come_back()
            await until(lambda: reported)
            await asyncio.sleep(10)
        assert reported == ["present"]
        await reachability.close()


def _note(reported: list[str], who: str, _away: Unheard | None) -> None:
    reported.append(who)


@story
async def test_a_broker_with_an_untrusted_certificate_is_unreachable_for_members() -> None:
    """Clients are relayed to it with the same trust. A refusal of Muster's own credentials says nothing about them."""
    for refusal in (
        BrokerNotTrusted("the certificate of the broker at broker:1: it has expired"),
        UpstreamRefused("the broker at broker:1 refuses Muster"),
        OwnShortage("broker:1: this machine has no local port left for it"),
    ):
        link = RefusingLink(refusal)
        reachability = Reachability(cast("UpstreamLink", link), give_up=unexpected, monotonic_ms=lambda: 0)
        reported = list[Unheard | None]()
        with capture_logs():
            reachability.ask_about_silence(GroupId("g"), reported.append)
            await asyncio.sleep(60)
            assert reported == ([] if isinstance(refusal, BrokerNotTrusted) else [None])
            link.refusal = None
            await asyncio.sleep(10)
        assert reported == ([(0, 0)] if isinstance(refusal, BrokerNotTrusted) else [None])
        await reachability.close()


@story
async def test_a_bug_in_asking_ends_the_process() -> None:
    """Otherwise the members' expiry would be delayed for ever."""
    bugs = list[Exception]()
    link: Any = RefusingLink(ZeroDivisionError("a bug"))
    reachability = new_reachability(link, give_up=bugs.append)
    reachability.ask_about_silence(GroupId("g"), lambda _: None)
    await until(lambda: bugs)
    assert [type(bug) for bug in bugs] == [ZeroDivisionError]
    await reachability.close()


class RefusingLink:
    """A link to one broker that cannot be reached while `refusal` has a reason."""

    def __init__(self, refusal: Exception) -> None:
        self.refusal: Exception | None = refusal
        self.heard = HeardFrom(Heard)

    def known_coordinator(self, _group_id: str) -> int:
        return 1

    def learn_coordinator(self, group_id: str, node_id: int) -> None:
        """It is known from the start."""

    def last_coordinator_outage(self, _group_id: str) -> None:
        """No one else has noticed it."""

    async def coordinators(self, group_ids: list[str]) -> dict[str, int]:
        return dict.fromkeys(group_ids, 1)

    def forget_coordinator(self, group_id: str) -> None:
        """It is looked up each time."""

    async def ask(self, _node_id: int, _request: object, response: Any, **_: object) -> Any:
        if self.refusal is not None:
            raise self.refusal
        return response(throttle_time=i32Timedelta.parse(timedelta(0)), groups=())
