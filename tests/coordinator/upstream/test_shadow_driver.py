"""The driver of shadows: which requests may be under way at once."""

import asyncio
from typing import Any

from muster.coordinator.upstream.shadow import Shadow, ShadowName, ShadowState
from muster.coordinator.upstream.shadow_driver import ShadowDriver, ShadowHandle
from muster.events.ids import GroupId
from tests.simulation.virtual_time import simulate


class Silent:
    """A link whose requests are parked for ever."""

    def __init__(self) -> None:
        self.parked: list[str] = []

    async def ask_coordinator(self, group_id: str, *_: object, **__: object) -> Any:
        self.parked.append(group_id)
        await asyncio.Event().wait()


def test_a_new_group_does_not_wait_for_those_that_are_retaken() -> None:
    """After a restart there may be thousands: 64 of their joins are parked at once, of the 256 that may be."""

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
