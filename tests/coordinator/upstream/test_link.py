"""The upstream cluster as we see it: found, kept fresh, asked again, given up with one clear line."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.types import GroupId as KafkaGroupId
from kio.static.primitive import i32

from muster.coordinator.upstream.link import Brokers, UpstreamLink, UpstreamRefused
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.errors import AnswerLost, TryAgain
from tests.brokers import Broker
from tests.brokers.cluster import Cluster
from tests.coordinator.upstream.fake_broker import KAFKA_3_2, fake_broker
from tests.coordinator.upstream.stage import Process, new_group, unexpected
from tests.events.log.kafka_proxy import BrokerProxy
from tests.waiting import until

FIND_COORDINATOR, HEARTBEAT = 10, 12
QUIET = {ErrorCode.none, ErrorCode.unknown_member_id}
"""How a heartbeat of nobody's is answered; NONE while the coordinator loads the group."""


def heartbeat(group_id: str) -> HeartbeatRequest:
    """A question that changes nothing: nobody is in the group."""
    return HeartbeatRequest(group_id=KafkaGroupId(group_id), generation_id=i32(1), member_id="nobody")


def error_of(answer: HeartbeatResponse) -> ErrorCode:
    return answer.error_code


@asynccontextmanager
async def link_to(
    bootstrap: str, *, request_timeout_ms: int = 10_000, metadata_max_age_ms: int = 30_000
) -> AsyncIterator[UpstreamLink]:
    """An open link, until the block ends; nothing beside it may have failed."""
    failures: list[Exception] = []
    link = UpstreamLink(
        bootstrap,
        give_up=failures.append,
        request_timeout_ms=request_timeout_ms,
        metadata_max_age_ms=metadata_max_age_ms,
    )
    await link.open()
    try:
        yield link
    finally:
        await link.close()
    assert failures == []


def nobody() -> tuple[str, str]:
    """Two addresses at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{other.getsockname()[1]}"


# ---- finding the cluster ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["kafka", ":9092", "kafka:", "kafka:x", "kafka:0", "kafka:70000", "a:1,,b:2"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """With an example of one."""
    with pytest.raises(UpstreamRefused, match="should be HOST:PORT, for example kafka:9092"):
        UpstreamLink(text, give_up=unexpected)


async def test_a_cluster_that_is_not_there() -> None:
    """One line, which names all addresses; the caller may try again."""
    first, second = nobody()
    link = UpstreamLink(f"{first},{second}", give_up=unexpected)
    for _ in range(2):
        with pytest.raises(TryAgain, match=f"no broker of the upstream cluster answers.*{first}.*{second}"):
            await link.open()
    await link.close()


async def test_what_is_no_name_of_a_host_is_refused() -> None:
    """It is whoever gave it who is told, and no error of ours."""
    link = UpstreamLink("kafka..example:9092", give_up=unexpected)
    with pytest.raises(UpstreamRefused, match=r"kafka\.\.example:9092: .*label empty"):
        await link.open()
    await link.close()


async def test_somebody_who_never_answers() -> None:
    """Is given up after the limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = UpstreamLink(f"127.0.0.1:{silent.getsockname()[1]}", give_up=unexpected, request_timeout_ms=100)
        with pytest.raises(TryAgain, match=r"did not answer within 0\.1 s"):
            await link.open()
        await link.close()


async def test_a_broker_that_is_too_old() -> None:
    """One line says what is needed."""
    async with fake_broker({3: 12, 10: 4, 11: 5}) as fake:
        link = UpstreamLink(fake.address, give_up=unexpected)
        with pytest.raises(UpstreamRefused, match=r"broker offers JoinGroup v0 to v5, v9 is needed: Kafka 3\.2"):
            await link.open()
        await link.close()
    async with fake_broker({3: 12}) as fake:
        link = UpstreamLink(fake.address, give_up=unexpected)
        with pytest.raises(UpstreamRefused, match="the upstream broker lacks FindCoordinator, v4 is needed"):
            await link.open()
        await link.close()


async def test_what_a_broker_does_not_offer_is_not_sent() -> None:
    """It would hang up."""
    async with fake_broker({**KAFKA_3_2, 12: 3}) as fake:
        link = UpstreamLink(fake.address, give_up=unexpected)
        with pytest.raises(UpstreamRefused, match="Heartbeat v0 to v3"):
            await link.open()
        with pytest.raises(UpstreamRefused, match="does not offer Heartbeat v4"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        await link.close()


# ---- asking -------------------------------------------------------------------------------------------


async def test_an_answer_that_does_not_come_is_lost() -> None:
    """After the limit, since it may have had an effect; the next question has a connection of its own."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse, timeout_ms=100)
        before = fake.connections
        with pytest.raises(AnswerLost, match=r":\d+ did not answer within 0\.1 s$"):
            await link.ask(1, heartbeat("unanswered"), HeartbeatResponse, timeout_ms=100)
        await link.ask(1, heartbeat("g"), HeartbeatResponse, timeout_ms=100)
        assert fake.connections == before + 1


async def test_lanes_do_not_wait_for_each_other() -> None:
    """Each is a connection, on which the answers come one after another."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        waiting = [
            asyncio.create_task(link.ask(1, heartbeat(group_id), HeartbeatResponse, lane="a"))
            for group_id in ("unanswered", "g")
        ]
        await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="b")
        assert not any(task.done() for task in waiting)
        assert fake.connections == 3, "one for the brokers, and one for each lane"
    for answer in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(answer, AnswerLost), "they ended when the link was closed"


async def test_what_cannot_be_opened_is_not_tried_at_each_question() -> None:
    """A thousand groups that ask at once make a few attempts."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        fake.hangs_up = True
        before = fake.connections
        asked = (link.ask(1, heartbeat("g"), HeartbeatResponse, lane=lane) for lane in range(1_000))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(answer) for answer in answers} == {TryAgain}
        assert fake.connections - before < 300


async def test_a_broker_of_another_cluster_behind_a_known_address_is_not_spoken_to() -> None:
    """It is asked which cluster it is of, and nothing else; then it may be the right one again."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="before")
        fake.cluster_id, fake.asked = "somebody else's", []
        with pytest.raises(TryAgain, match=r"cluster somebody else's, where one of fake was expected"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="after")
        assert HEARTBEAT not in fake.asked
        assert link.cluster_id == "fake"
        fake.cluster_id = "fake"
        shut_until, _ = link._connections._known[read_servers(fake.address)[0]].shut or (0.0, None)
        await until(lambda: asyncio.get_running_loop().time() > shut_until)
        await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="again")


async def test_addresses_that_brokers_have_left_are_forgotten() -> None:
    """Brokers may come back at new ones for ever; what is kept are those that are named, or spoken to."""
    async with fake_broker() as first, fake_broker() as moving, link_to(first.address) as link:
        for _ in range(5):
            moving.stop()
            await moving.ended()
            await moving.start()
            first.node_at = moving.address
            await link.refresh()
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        await link.refresh()  # by now it has been noticed that the former connections are closed
        assert link._connections._known.keys() == {*read_servers(first.address), *read_servers(moving.address)}


# ---- on real brokers ----------------------------------------------------------------------------------


@pytest.mark.broker
async def test_the_first_address_may_be_nobodys(kafka_broker: Broker) -> None:
    """The next one is asked."""
    async with link_to(f"{nobody()[0]},{kafka_broker.bootstrap}") as link:
        assert link.brokers() == {1: ("127.0.0.1", int(kafka_broker.bootstrap.rpartition(":")[2]))}
        assert len(link.cluster_id) == 22
        assert link.offers(11, 9)
        assert not link.offers(11, 99)


@pytest.mark.broker
async def test_a_question_to_the_coordinator_of_a_group(ours: Process) -> None:
    """Its answer comes back with whatever error it has."""
    group_id = new_group()
    answer = await ours.link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of)
    assert answer.error_code in QUIET


@pytest.mark.broker
async def test_a_broker_that_is_not_there(kafka_broker: Broker) -> None:
    """It is looked for once more, then that is said."""
    async with link_to(kafka_broker.bootstrap) as link:
        with pytest.raises(TryAgain, match="broker 99 is not there"):
            await link.ask(99, heartbeat("g"), HeartbeatResponse)


@pytest.mark.broker
async def test_a_lost_answer_is_not_asked_for_twice(kafka_broker: Broker) -> None:
    """It may have changed something; and the coordinator is looked for anew."""
    proxy = BrokerProxy(kafka_broker.bootstrap)
    await proxy.start()
    async with link_to(proxy.address) as link:
        proxy.lose_answers(HEARTBEAT, 1)
        with pytest.raises(AnswerLost):
            await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
        assert proxy.requests.count(HEARTBEAT) == 1
        looked_for = proxy.requests.count(FIND_COORDINATOR)  # more than once if the broker was slow
        await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
        assert proxy.requests.count(FIND_COORDINATOR) > looked_for
    await proxy.stop()


@pytest.mark.broker
async def test_after_closing_nothing_is_asked(kafka_broker: Broker) -> None:
    """Neither on an open connection, nor on a new one."""
    async with link_to(kafka_broker.bootstrap) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse)
    with pytest.raises(TryAgain, match="closed"):
        await link.ask(1, heartbeat("g"), HeartbeatResponse)


@pytest.mark.broker
async def test_a_cluster_of_three(kafka_cluster: Cluster) -> None:
    """All are known from one address; groups are coordinated by several of them; a change of the brokers is told."""
    told: list[Brokers] = []
    async with link_to(kafka_cluster.bootstrap.split(",")[0], metadata_max_age_ms=50) as link:
        assert sorted(link.brokers()) == [1, 2, 3]
        groups = [new_group() for _ in range(30)]
        for group_id in groups:
            answer = await link.ask_coordinator(
                group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=30_000
            )
            assert answer.error_code in QUIET
        assert len({link.known_coordinator(group_id) for group_id in groups}) > 1
        link.on_brokers(told.append)
        link._view.brokers = {4: BrokerAddress("127.0.0.1", 1)}  # what it has heard before
        await until(lambda: told != [])
        assert sorted(told[0]) == [1, 2, 3]


@pytest.mark.broker
async def test_a_coordinator_that_has_moved_is_found_again(kafka_cluster: Cluster) -> None:
    """NOT_COORDINATOR makes the link ask who it is now."""
    async with link_to(kafka_cluster.bootstrap) as link:
        group_id = new_group()
        await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=30_000)
        right = await link.coordinator(group_id)
        wrong = right % 3 + 1
        link._coordinators.learn(group_id, wrong)
        with pytest.raises(TryAgain, match=f"broker {wrong} says NOT_COORDINATOR"):
            await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=0)
        link._coordinators.learn(group_id, wrong)
        answer = await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of)
        assert answer.error_code in QUIET
        assert link.known_coordinator(group_id) == right
