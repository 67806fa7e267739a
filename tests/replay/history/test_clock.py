"""Event times without jumps of the wall clock."""

import msgspec
import pytest

from muster.replay.history.clock import SteadyClock
from muster.replay.history.items import Happened
from tests.replay.stories import a_night

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("uptime_ms", "ahead_ms", "jump_ms"),
    [
        (10 * HOUR_MS, 20_000, 0),  # NTP slews it by this much
        (10 * HOUR_MS, 60_000, 60_000),
        (1_000, 900, 0),
        (1_000, 20_000, 20_000),
        (1_000, -20_000, -20_000),
    ],
)
def test_a_clock_that_is_slewed_has_not_jumped(uptime_ms: int, ahead_ms: int, jump_ms: int) -> None:
    """The longer the time between, the more it may differ; a jump is undone."""
    event = next(each.event for each in a_night().reads if isinstance(each, Happened))
    began_ms = event.why.decided_ms
    clock = SteadyClock()
    for uptime, decided_ms, jumped in ((0, began_ms, 0), (uptime_ms, began_ms + uptime_ms + ahead_ms, jump_ms)):
        why = msgspec.structs.replace(event.why, uptime_ms=uptime, decided_ms=decided_ms)
        steadied, jump = clock.steadied(msgspec.structs.replace(event, why=why))
        assert (jump, steadied.why.decided_ms) == (jumped, decided_ms - jumped)
