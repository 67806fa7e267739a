"""The link to the upstream cluster: found, refreshed, retried, and given up with one clear error."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from muster.coordinator.observability.metrics import REGISTRY
from muster.coordinator.upstream.errors import UpstreamRefused, connection_error
from muster.coordinator.upstream.upstream_link import Brokers, UpstreamLink
from muster.events.kafka.addresses import BrokerAddress, read_servers
from muster.events.kafka.errors import COORDINATOR_MOVED, AnswerLost, TryAgain
from muster.events.kafka.security import KafkaSecurity
from tests.brokers.broker import Broker
from tests.brokers.cluster import Cluster
from tests.coordinator.upstream.fake_broker import KAFKA_3_2, fake_broker, heartbeat
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.coordinator.upstream.stage import Process, new_group, unexpected
from tests.events.log.kafka_proxy import BrokerProxy
from tests.faults.process import story
from tests.simulation.virtual_time import VirtualClock
from tests.waiting import until

FIND_COORDINATOR, HEARTBEAT = 10, 12
QUIET = {ErrorCode.none, ErrorCode.unknown_member_id}
"""The error of an unknown member's heartbeat; NONE while the coordinator loads the group."""


def errors(kind: str) -> float:
    """The number of counted errors of that kind."""
    return REGISTRY.get_sample_value("muster_upstream_errors_total", {"kind": kind}) or 0.0


def error_of(answer: HeartbeatResponse) -> ErrorCode:
    return answer.error_code


@asynccontextmanager
async def link_to(
    bootstrap: str, *, request_timeout_ms: int = 10_000, metadata_max_age_ms: int = 30_000
) -> AsyncIterator[UpstreamLink]:
    """An open link, until the block ends; checks that nothing failed in the background."""
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


def unused_addresses() -> tuple[str, str]:
    """Two addresses without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        return f"127.0.0.1:{one.getsockname()[1]}", f"127.0.0.1:{other.getsockname()[1]}"


# ---- finding the cluster ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["kafka", ":9092", "kafka:", "kafka:x", "kafka:0", "a:1,,b:2"])
def test_invalid_addresses_are_refused(text: str) -> None:
    """With an example of a valid one."""
    with pytest.raises(UpstreamRefused, match="should be HOST:PORT, for example kafka:9092"):
        UpstreamLink(text, give_up=unexpected)


@pytest.mark.parametrize("text", ["kafka:65536", "a:1,kafka:70000"])
def test_a_port_that_there_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UpstreamRefused, match=r"'kafka:[0-9]+' should be HOST:PORT with a port of 65535 at most"):
        UpstreamLink(text, give_up=unexpected)


async def test_a_cluster_that_is_not_there() -> None:
    """One line with all addresses; the caller may retry."""
    first, second = unused_addresses()
    link = UpstreamLink(f"{first},{second}", give_up=unexpected)
    for _ in range(2):
        with pytest.raises(TryAgain, match=f"no broker of the upstream cluster answers.*{first}.*{second}"):
            await link.open()
    await link.close()


async def test_invalid_host_names_are_refused() -> None:
    """The user gets the error, and it is not reported as a bug of Muster."""
    link = UpstreamLink("kafka..example:9092", give_up=unexpected)
    with pytest.raises(UpstreamRefused, match=r"kafka\.\.example:9092: .*label empty"):
        await link.open()
    await link.close()


async def test_a_server_that_never_responds() -> None:
    """The link gives up after the limit."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        link = UpstreamLink(f"127.0.0.1:{silent.getsockname()[1]}", give_up=unexpected, request_timeout_ms=100)
        with pytest.raises(TryAgain, match=r"did not answer within 0\.1 s"):
            await link.open()
        await link.close()


async def test_a_broker_that_is_too_old() -> None:
    """One line has what is needed."""
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


async def test_unsupported_apis_are_not_sent() -> None:
    """The broker would disconnect."""
    async with fake_broker({**KAFKA_3_2, 12: 3}) as fake:
        link = UpstreamLink(fake.address, give_up=unexpected)
        with pytest.raises(UpstreamRefused, match="Heartbeat v0 to v3"):
            await link.open()
        refused = errors("refused")
        with pytest.raises(UpstreamRefused, match="does not offer Heartbeat v4"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        assert errors("refused") == refused + 1
        await link.close()


# ---- requests ------------------------------------------------------------------------------------------


async def test_an_answer_that_does_not_come_is_lost() -> None:
    """After the limit, since it may have had an effect; the next request has a new connection."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse, timeout_ms=1_000)
        before, lost = fake.connections, errors("answer-lost")
        with pytest.raises(AnswerLost, match=r":\d+ did not answer within 1 s$"):
            await link.ask(1, heartbeat("unanswered"), HeartbeatResponse, timeout_ms=1_000)
        await link.ask(1, heartbeat("g"), HeartbeatResponse, timeout_ms=1_000)
        assert fake.connections == before + 1
        assert errors("answer-lost") == lost + 1


async def test_a_broker_was_heard_when_the_answered_request_was_sent() -> None:
    """Not later: its response may have been sent before it hung. A broker that does not respond was not heard."""
    now_ms = 5_000
    async with fake_broker() as fake:
        link = UpstreamLink(fake.address, give_up=unexpected, monotonic_ms=lambda: now_ms)
        await link.open()
        assert link.heard[1].until_ms == 0
        now_ms = 7_000
        pending = asyncio.create_task(link.ask(1, heartbeat("g"), HeartbeatResponse))
        await until(lambda: HEARTBEAT in fake.asked)
        now_ms = 9_000
        await pending
        assert link.heard[1].until_ms == 7_000
        with pytest.raises(AnswerLost):
            await link.ask(1, heartbeat("unanswered"), HeartbeatResponse, timeout_ms=100)
        assert link.heard[1].until_ms == 7_000
        await link.close()


def failing_with(error: ErrorCode, times: int) -> Callable[[bytes], bytes]:
    """The first heartbeat responses, changed to have this error."""
    left = iter(range(times))
    error_at = 4 + 1 + 4  # after the correlation id, the header's tags, and the throttle time
    return lambda answer: (
        answer
        if next(left, None) is None
        else answer[:error_at] + error.value.to_bytes(2, "big") + answer[error_at + 2 :]
    )


@asynccontextmanager
async def simulated_link(broker: SimulatedBroker) -> AsyncIterator[UpstreamLink]:
    """An open link in virtual time, until the block ends."""
    link = UpstreamLink(broker.address, give_up=unexpected, monotonic_ms=VirtualClock().monotonic_ms)
    await link.open()
    yield link
    await link.close()


@pytest.mark.parametrize("error", sorted(COORDINATOR_MOVED), ids=lambda error: error.name)
@story
async def test_a_coordinator_that_has_moved_is_looked_up_and_queried_again(error: ErrorCode) -> None:
    """Until the new one responds; a caller with no time left gets the error at once."""
    fake = SimulatedBroker(1)
    async with simulated_link(fake) as link:
        fake.changed_answers[HEARTBEAT] = failing_with(error, times=4)
        with pytest.raises(TryAgain, match=f"broker 1 returned {error.name.upper()} for group g"):
            await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of, retry_ms=0)
        assert [fake.asked.count(key) for key in (FIND_COORDINATOR, HEARTBEAT)] == [1, 1]
        answer = await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
        assert answer.error_code is ErrorCode.none
        assert [fake.asked.count(key) for key in (FIND_COORDINATOR, HEARTBEAT)] == [5, 5]


@story
async def test_a_coordinator_that_keeps_moving_is_looked_up_until_the_callers_timeout() -> None:
    """More than once a second, and with pauses."""
    fake, clock = SimulatedBroker(1), VirtualClock()
    async with simulated_link(fake) as link:
        fake.changed_answers[HEARTBEAT] = failing_with(ErrorCode.not_coordinator, times=10_000)
        began_ms = clock.monotonic_ms()
        with pytest.raises(TryAgain, match="broker 1 returned NOT_COORDINATOR"):
            await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of, retry_ms=5_000)
        assert 5_000 <= clock.monotonic_ms() - began_ms <= 6_000
        assert 5 <= fake.asked.count(HEARTBEAT) <= 100


async def test_a_request_that_may_have_had_an_effect_is_not_repeated() -> None:
    async with fake_broker() as fake, link_to(fake.address) as link:
        with pytest.raises(AnswerLost):
            await link.ask_coordinator(
                "unanswered", heartbeat("unanswered"), HeartbeatResponse, error_of=error_of, timeout_ms=100
            )
        assert fake.asked.count(HEARTBEAT) == 1


async def test_a_refused_request_is_not_repeated() -> None:
    """It would be refused again, for all of the caller's time."""
    async with fake_broker({**KAFKA_3_2, HEARTBEAT: 3}) as fake:
        link = UpstreamLink(fake.address, give_up=unexpected)
        with pytest.raises(UpstreamRefused, match="Heartbeat v0 to v3"):
            await link.open()
        with pytest.raises(UpstreamRefused, match="does not offer Heartbeat v4"):
            await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
        assert fake.asked.count(FIND_COORDINATOR) == 1
        await link.close()


async def test_an_api_is_offered_in_the_versions_that_the_broker_names() -> None:
    """From the first to the last, and no other API in any version."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        assert [link.offers(HEARTBEAT, version) for version in (-1, 0, 4, 5)] == [False, True, True, False]
        assert not any(link.offers(999, version) for version in (-2, -1, 0, 1))


@pytest.mark.parametrize("presents_certificate", [True, False])
@pytest.mark.parametrize("reason", ["TLSV13_ALERT_CERTIFICATE_REQUIRED", "WRONG_VERSION_NUMBER"])
def test_a_broker_that_may_require_a_certificate_is_logged_with_the_option(
    reason: str, presents_certificate: bool
) -> None:
    """Unless one is configured already, or the error has another cause."""
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason} (_ssl.c:1006)")
    error.reason = reason
    security = KafkaSecurity(security_protocol="SSL", presents_certificate=presents_certificate)
    reported = str(connection_error(BrokerAddress("kafka", 9093), error, security))
    assert reported.startswith(f"TLS fails with the broker at kafka:9093: {reason.lower().replace('_', ' ')}")
    may_help = "CERTIFICATE" in reason and not presents_certificate
    assert ("none is given (ssl.certificate.location)" in reported) == may_help


async def test_lanes_do_not_wait_for_each_other() -> None:
    """Each is a connection, on which responses come in order."""
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


async def test_an_unopenable_connection_is_not_retried_for_each_request() -> None:
    """A thousand groups that ask at once cause a few attempts."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        fake.hangs_up = True
        before = fake.connections
        requested = (link.ask(1, heartbeat("g"), HeartbeatResponse, lane=lane) for lane in range(1_000))
        answers = await asyncio.gather(*requested, return_exceptions=True)
        assert {type(answer) for answer in answers} == {TryAgain}
        assert fake.connections - before < 300


async def test_a_broker_of_another_cluster_behind_a_known_address_is_not_spoken_to() -> None:
    """It is only asked for its cluster id; later it may be the right one again."""
    async with fake_broker() as fake, link_to(fake.address) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="before")
        fake.cluster_id, fake.asked = "somebody else's", []
        with pytest.raises(TryAgain, match=r"cluster somebody else's, and cluster fake was expected"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="after")
        assert HEARTBEAT not in fake.asked
        assert link.cluster_id == "fake"
        fake.cluster_id = "fake"
        shut_until, _ = link._connections._known[read_servers(fake.address)[0]].shut or (0.0, None)
        await until(lambda: asyncio.get_running_loop().time() > shut_until)
        await link.ask(1, heartbeat("g"), HeartbeatResponse, lane="again")


async def test_addresses_that_brokers_have_left_are_forgotten() -> None:
    """Brokers may return at new ones again and again; only current and used addresses are kept."""
    async with fake_broker() as first, fake_broker() as moving, link_to(first.address) as link:
        for _ in range(5):
            moving.stop()
            await moving.ended()
            await moving.start()
            first.node_at = moving.address
            await link.refresh()
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        await link.refresh()  # the end of the former connections has been noticed by now
        assert link._connections._known.keys() == {*read_servers(first.address), *read_servers(moving.address)}


# ---- on real brokers ----------------------------------------------------------------------------------


@pytest.mark.broker
async def test_the_first_address_may_be_unused(kafka_broker: Broker) -> None:
    """The next one is used."""
    async with link_to(f"{unused_addresses()[0]},{kafka_broker.bootstrap}") as link:
        assert link.brokers() == {1: ("127.0.0.1", int(kafka_broker.bootstrap.rpartition(":")[2]))}
        assert len(link.cluster_id) == 22
        assert link.offers(11, 9)
        assert not link.offers(11, 99)


@pytest.mark.broker
async def test_a_question_to_the_coordinator_of_a_group(ours: Process) -> None:
    """Its response is returned with any error in it."""
    group_id = new_group()
    answer = await ours.link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of)
    assert answer.error_code in QUIET


@pytest.mark.broker
async def test_a_broker_that_is_not_there(kafka_broker: Broker) -> None:
    """It is looked up once more, then that is reported."""
    async with link_to(kafka_broker.bootstrap) as link:
        with pytest.raises(TryAgain, match="broker 99 is not there"):
            await link.ask(99, heartbeat("g"), HeartbeatResponse)


@pytest.mark.broker
async def test_a_request_with_a_lost_response_is_not_repeated(kafka_broker: Broker) -> None:
    """It may have changed something; the coordinator is looked up again."""
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
async def test_nothing_is_sent_after_closing(kafka_broker: Broker) -> None:
    """Neither on an open connection, nor on a new one."""
    async with link_to(kafka_broker.bootstrap) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse)
    with pytest.raises(TryAgain, match="closed"):
        await link.ask(1, heartbeat("g"), HeartbeatResponse)


@pytest.mark.broker
async def test_a_cluster_of_three(kafka_cluster: Cluster) -> None:
    """All are found from one address; several of them coordinate groups; a change of the brokers is reported."""
    reported: list[Brokers] = []
    async with link_to(kafka_cluster.bootstrap.split(",")[0], metadata_max_age_ms=50) as link:
        assert sorted(link.brokers()) == [1, 2, 3]
        groups = [new_group() for _ in range(30)]
        for group_id in groups:
            answer = await link.ask_coordinator(
                group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=30_000
            )
            assert answer.error_code in QUIET
        assert len({link.known_coordinator(group_id) for group_id in groups}) > 1
        link.on_brokers(reported.append)
        link._view.brokers = {4: BrokerAddress("127.0.0.1", 1)}  # it has no earlier change
        await until(lambda: reported != [])
        assert sorted(reported[0]) == [1, 2, 3]


@pytest.mark.broker
async def test_a_coordinator_that_has_moved_is_found_again(kafka_cluster: Cluster) -> None:
    """After NOT_COORDINATOR the link looks it up again."""
    async with link_to(kafka_cluster.bootstrap) as link:
        group_id = new_group()
        await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=30_000)
        right = await link.coordinator(group_id)
        wrong = right % 3 + 1
        link._coordinators.learn(group_id, wrong)
        with pytest.raises(TryAgain, match=f"broker {wrong} returned NOT_COORDINATOR"):
            await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of, retry_ms=0)
        link._coordinators.learn(group_id, wrong)
        answer = await link.ask_coordinator(group_id, heartbeat(group_id), HeartbeatResponse, error_of=error_of)
        assert answer.error_code in QUIET
        assert link.known_coordinator(group_id) == right
