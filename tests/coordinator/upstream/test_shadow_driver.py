"""The driver of shadows: which requests may be in flight at once, and when they are retried."""

import asyncio
import random
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kio.schema.errors import ErrorCode
from structlog.testing import capture_logs

from muster.coordinator.upstream import shadow_driver
from muster.coordinator.upstream.shadow import Shadow, ShadowName, ShadowState
from muster.coordinator.upstream.shadow_driver import ShadowDriver, ShadowHandle
from muster.coordinator.upstream.upstream_link import UpstreamLink
from muster.events.ids import GroupId
from muster.events.kafka.errors import TryAgain
from tests.simulation.virtual_time import simulate


class Silent:
    """A link whose requests are parked for ever."""

    def __init__(self) -> None:
        self.parked: list[str] = []

    async def ask_coordinator(self, group_id: str, *_: object, **__: object) -> Any:
        self.parked.append(group_id)
        await asyncio.Event().wait()


def test_a_new_group_does_not_wait_for_those_that_are_retaken() -> None:
    """After a restart there may be thousands: 64 of their joins are parked at once, of 256 in all."""

    async def story() -> None:
        link: Any = Silent()
        driver = ShadowDriver(link, ShadowName.of("log"), session_timeout_ms=300_000)
        shadow = Shadow(wanted=1, state=ShadowState.UNSURE)
        groups = [
            *(ShadowHandle(GroupId(f"retaken-{n}"), shadow, is_retake=True) for n in range(1_000)),
            *(ShadowHandle(GroupId(f"new-{n}"), shadow) for n in range(1_000)),
        ]
        driven = [asyncio.create_task(driver.drive(handle)) for handle in groups]
        await asyncio.sleep(1.0)
        assert sum(group_id.startswith("retaken-") for group_id in link.parked) == 64
        assert len(link.parked) == 256
        for task in driven:
            task.cancel()
        await asyncio.gather(*driven, return_exceptions=True)

    simulate(story())


def test_the_requests_of_all_groups_share_a_few_lanes() -> None:
    """Each lane is a connection to each broker."""
    lanes = {shadow_driver._request_lane(GroupId(f"g{n}")) for n in range(1_000)}
    assert len(lanes) == shadow_driver.REQUEST_LANES


class Refuses:
    """A link to a cluster that cannot be reached, or refuses each request with the same error."""

    def __init__(self, error: ErrorCode | None) -> None:
        self.asked_s: list[float] = []
        self._error = error

    async def ask_coordinator(self, *_: object, **__: object) -> Any:
        self.asked_s.append(asyncio.get_running_loop().time())
        if self._error is None:
            raise TryAgain("nobody there")
        return SimpleNamespace(error_code=self._error)


def driven(link: Any, for_s: float) -> ShadowDriver:
    """A driver that has tried for this long to have one group's shadow join."""
    driver = ShadowDriver(link, ShadowName.of("log"), session_timeout_ms=300_000)

    async def story() -> None:
        handle = ShadowHandle(GroupId("g"), Shadow(wanted=1, state=ShadowState.OUT))
        driving = asyncio.create_task(driver.drive(handle))
        await asyncio.sleep(for_s)
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)

    simulate(story())
    return driver


def test_pauses_between_attempts_double_up_to_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """These are the maxima: pauses are random."""
    monkeypatch.setattr(random, "uniform", lambda _low, high: high)
    link = Refuses(None)
    driven(link, 12.0)
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(link.asked_s)]
    assert pauses[:8] == [0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.0, 2.0]


def test_half_the_session_is_requested_if_sessions_must_be_shorter() -> None:
    """Repeatedly, but not below a minute."""
    assert driven(Refuses(ErrorCode.invalid_session_timeout), 12.0).session_timeout_ms == 75_000


def test_waiting_shadows_are_logged_by_one_of_them() -> None:
    """After the fifth failure, and at most every ten seconds: there may be thousands."""
    driver = ShadowDriver(cast("UpstreamLink", Refuses(None)), ShadowName.of("log"), session_timeout_ms=300_000)

    async def story() -> None:
        shadow = Shadow(wanted=1, state=ShadowState.OUT)
        driving = [asyncio.create_task(driver.drive(ShadowHandle(GroupId(f"g{n}"), shadow))) for n in range(20)]
        await asyncio.sleep(5.0)
        driving.append(asyncio.create_task(driver.drive(ShadowHandle(GroupId("soon after"), shadow))))
        await asyncio.sleep(10.0)
        driving.append(asyncio.create_task(driver.drive(ShadowHandle(GroupId("later"), shadow))))
        await asyncio.sleep(10.0)
        for task in driving:
            task.cancel()
        await asyncio.gather(*driving, return_exceptions=True)

    with capture_logs() as lines:
        simulate(story())
    assert [(line["event"], line["why"]) for line in lines] == [
        ("shadows wait for the upstream cluster", "nobody there")
    ] * 2
    assert lines[1]["for_example"] == "later"
