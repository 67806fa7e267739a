"""The upstream cluster, or one of its brokers, is down or hangs, for any time; in virtual time."""

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from structlog.testing import capture_logs

from muster.coordinator.upstream.cluster_outage import NOBODY_ANSWERS
from muster.coordinator.upstream.shadow import Shadow
from muster.coordinator.upstream.shadow_driver import ShadowDriver, ShadowHandle
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka import shortage
from muster.events.kafka.errors import OwnShortage, TryAgain
from muster.events.kafka.exchange import Exchange
from tests.coordinator.upstream.fake_broker import heartbeat
from tests.coordinator.upstream.simulated import SimulatedBroker
from tests.coordinator.upstream.stage import NAME, unexpected
from tests.coordinator.upstream.test_link import error_of
from tests.faults.process import seconds, story
from tests.faults.stumbling import stumbling
from tests.simulation.virtual_time import VirtualClock

METADATA = 3


@asynccontextmanager
async def linked(*brokers: SimulatedBroker) -> AsyncIterator[UpstreamLink]:
    """An open link to these brokers, until the block ends."""
    addresses = ",".join(broker.address for broker in brokers)
    link = UpstreamLink(addresses, give_up=unexpected, monotonic_ms=VirtualClock().monotonic_ms)
    await link.open()
    yield link
    await link.close()


def cluster_of_three() -> list[SimulatedBroker]:
    """They are asked in the order 3, 2, 1; the first coordinates all groups."""
    brokers = [SimulatedBroker(port) for port in (1, 2, 3)]
    for broker in brokers:
        broker.node_at, broker.others_at = brokers[0].address, [brokers[2].address, brokers[1].address]
    return brokers


async def ask_for(link: UpstreamLink, *groups: str) -> None:
    """A request to the coordinator of each group, which any broker knows."""
    requested = (link.ask_coordinator(each, heartbeat(each), HeartbeatResponse, error_of=error_of) for each in groups)
    await asyncio.gather(*requested)


@story
async def test_a_shadow_waits_for_a_cluster_unreachable_for_hours() -> None:
    """After any number of attempts: the 1,024th, after 25 minutes, used to end the process."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        broker.leave()
        held = ShadowHandle(GroupId("g"), Shadow(wanted=1))
        with capture_logs():
            driving = asyncio.create_task(ShadowDriver(link, NAME, session_timeout_ms=1_800_000).drive(held))
            await asyncio.wait({driving}, timeout=2 * 3600)
        assert not driving.done(), driving.exception()
        assert "Connect call failed" in held.last_error
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


@story
async def test_an_unreachable_cluster_is_logged_each_minute_and_its_return_at_once() -> None:
    """/readyz has the duration."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        broker.leave()
        with capture_logs() as reported:
            await asyncio.sleep(40)
            assert re.fullmatch(
                rf"--upstream {broker.address}: no broker of the cluster has answered for \d\d s, retrying: .*"
                r"Connect call failed.*",
                str(link.outage.reason),
            )
            await asyncio.sleep(120)
            broker.come_back()
            await asyncio.sleep(2)
            assert link.outage.reason is None
    assert [line["event"] for line in reported] == [
        *["the upstream cluster does not answer"] * 3,
        "the upstream cluster answers again",
    ]


@story
async def test_the_length_of_an_outage_has_one_start() -> None:
    """From the first unanswered request, not from the last response: for /readyz, the log lines and the end."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        await asyncio.sleep(25)
        with capture_logs() as reported:
            broker.leave()
            await asyncio.sleep(90)
            assert "has answered for 90 s, " in str(link.outage.reason)
            broker.come_back()
            await asyncio.sleep(3)
            broker.leave()
            await asyncio.sleep(5)
            assert "has answered for 5 s, " in str(link.outage.reason)
    assert [line["seconds"] for line in reported] == [0, 60, pytest.approx(91, abs=1), 0]


@story
async def test_a_cluster_that_becomes_unreachable_is_logged_at_once() -> None:
    """Without any request: our own connection ends."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        await asyncio.sleep(5)
        with capture_logs() as reported:
            broker.leave()
            await asyncio.sleep(1)
        assert "Connect call failed" in str(link.outage.reason)
    assert [line["event"] for line in reported] == ["the upstream cluster does not answer"]


@story
async def test_a_failed_connect_triggers_a_cluster_check_at_once() -> None:
    """A sidecar's client notices it where no connection ends by itself: the network is gone."""
    broker = SimulatedBroker(1)
    for not_reached in (1, None):
        broker.is_hung = False
        async with linked(broker) as link:
            await asyncio.sleep(5)
            broker.is_hung = True
            link.broker_not_reached(not_reached)
            await asyncio.sleep(11)
            assert "did not answer" in str(link.outage.reason)


@story
async def test_exhausted_local_resources_are_not_an_outage() -> None:
    """It is reported as such, and does not delay the expiry of members, since it says nothing about the broker."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        assert await link.coordinator("g") == 1
        with pytest.MonkeyPatch.context() as patched, capture_logs() as reported:
            patched.setattr(shortage, "_logged_s", {})
            patched.setattr(asyncio.get_running_loop(), "create_connection", _opens_no_more)
            for connection in broker.open:
                connection.cut()
            with pytest.raises(OwnShortage):
                await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)
            with pytest.raises(OwnShortage) as failed:
                await link.ask_any(Exchange(heartbeat("g"), HeartbeatResponse))
            assert NOBODY_ANSWERS not in str(failed.value)
            await asyncio.sleep(120)
            assert link.outage.reason is None
            assert link.last_coordinator_outage("g") is None
    assert reported == []


@story
async def test_exhausted_local_resources_hide_no_outage() -> None:
    """One connection could not be opened for lack of a port; the other broker is down."""
    brokers = [SimulatedBroker(1), SimulatedBroker(2)]
    async with linked(*brokers) as link:
        loop = asyncio.get_running_loop()
        create_connection = loop.create_connection

        async def create(protocol: Any, host: str, port: int, **how: Any) -> Any:
            if port == 1:
                await _opens_no_more()
            return await create_connection(protocol, host, port, **how)

        with pytest.MonkeyPatch.context() as patched, capture_logs():
            patched.setattr(loop, "create_connection", create)
            for broker in brokers:
                broker.leave()
            with pytest.raises(TryAgain, match=NOBODY_ANSWERS):
                await link.ask_any(Exchange(heartbeat("g"), HeartbeatResponse))
            await asyncio.sleep(10)
            assert "Connect call failed" in str(link.outage.reason)


async def _opens_no_more(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("fault", [KeyError("api_key"), AssertionError()])
@story
async def test_a_connect_that_fails_in_aiokafka_is_retried(fault: Exception) -> None:
    """The error is logged by name; it used to end the process."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        with stumbling(fault):
            broker.leave()
            broker.come_back()
            await asyncio.sleep(5)
            assert f"{type(fault).__name__} in aiokafka while connecting" in str(link.outage.reason)
        await asyncio.sleep(2)
        assert link.outage.reason is None


@story
async def test_a_rolling_restart_of_the_brokers_is_not_an_outage() -> None:
    """Another one responds."""
    brokers = cluster_of_three()
    async with linked(brokers[0]) as link:
        with capture_logs() as reported:
            for broker in brokers:
                broker.leave()
                await asyncio.sleep(5)
                assert link.outage.reason is None
                broker.come_back()
                await asyncio.sleep(5)
    assert reported == []


@story
async def test_a_connection_that_takes_no_request_any_more_is_replaced() -> None:
    """Nothing was sent, so the coordinator may be asked again: uvloop's error for it is no OSError."""
    broker = SimulatedBroker(1)
    async with linked(broker) as link:
        await link.ask(1, heartbeat("g"), HeartbeatResponse)
        for connection in broker.open:
            connection.is_refusing_writes = True
        with pytest.raises(TryAgain, match="handler is closed"):
            await link.ask(1, heartbeat("g"), HeartbeatResponse)
        await link.ask_coordinator("g", heartbeat("g"), HeartbeatResponse, error_of=error_of)


@story
async def test_a_broker_that_hangs_delays_one_question() -> None:
    """Half a second each; later requests go to other brokers, and concurrent ones are not delayed further."""
    first, *others = cluster_of_three()
    async with linked(first) as link:
        await ask_for(link, "before")
        for other in others:
            other.is_hung = True
        began = seconds()
        await ask_for(link, *(f"g{number}" for number in range(100)))
        assert seconds() - began <= 1.1
        began = seconds()
        await ask_for(link, "after")
        await link.refresh()
        assert seconds() - began < 0.3


@story
async def test_a_cluster_is_found_past_a_broker_that_hangs() -> None:
    """Also while its connections are opened; those that were opened are closed."""
    first, hung, _ = cluster_of_three()
    hung.is_hung = True
    began = seconds()
    async with linked(hung, first):
        assert seconds() - began <= 0.6
        await asyncio.sleep(0.1)
        assert all(connection.is_closing() for connection in hung.open)


@story
async def test_a_silent_broker_is_queried_when_the_others_are_unreachable() -> None:
    """It may be back."""
    first, *others = cluster_of_three()
    async with linked(first) as link:
        for other in others:
            other.is_hung = True
        await ask_for(link, "g")
        others[0].is_hung = False
        others[1].leave()
        first.leave()
        await link.refresh()


@story
async def test_a_watcher_of_the_brokers_is_notified_when_they_change() -> None:
    """Not at each check."""
    first, second = SimulatedBroker(1), SimulatedBroker(2)
    async with linked(first) as link:
        reported: list[dict[int, tuple[str, int]]] = []
        link.on_brokers(lambda brokers: reported.append(dict(brokers)))
        await link.refresh()
        assert reported == []
        second.node_at, first.others_at = first.address, [second.address]
        second.others_at = first.others_at
        await link.refresh()
        await link.refresh()
        assert reported == [{1: ("broker", 1), 2: ("broker", 2)}]


@story
async def test_the_cluster_is_recognized_by_its_versions() -> None:
    """An API that is not listed is not offered."""
    async with linked(SimulatedBroker(1)) as link:
        assert [link.offers(METADATA, version) for version in (0, 12, 13)] == [True, True, False]
        assert [link.offers(69, version) for version in (0, 1)] == [False, False]
