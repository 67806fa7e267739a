"""The time between two owners whose wall clocks differ: the log's own times tell how far they are apart."""

import msgspec
import pytest

from muster.events.state import Member
from muster.replay.history.items import Coordinated
from muster.replay.incidents.episode.coordinator_absences import Absences, Away, LastKnown
from tests.coordinator.group.harness import Harness
from tests.replay.played import ready

BEGAN_MS = 1_700_000_000_000
LIVED_MS = 600_000
AWAY_MS = 5_000
HOUR_MS = 3_600_000


def in_log_at(item: Coordinated, ms: int) -> Coordinated:
    return msgspec.structs.replace(item, position=msgspec.structs.replace(item.position, timestamp_ms=ms))


def members() -> tuple[Member, ...]:
    harness = Harness()
    harness.stable_group(harness.static("a"))
    return tuple(harness.live.members.values())


def away(ahead_ms: int, *, before_ms: int = 0, jump_ms: int = 0, log_has_times: bool = True) -> Away:
    """Tell of a takeover by one whose clock is so far ahead of the brokers'; `before_ms`: its predecessor's.

    `jump_ms`: by how much the predecessor's jumped while it served.
    """
    absences = Absences()
    died_ms = BEGAN_MS + LIVED_MS
    back_ms = died_ms + AWAY_MS
    first = ready(0, BEGAN_MS + before_ms)
    second = ready(1, back_ms + ahead_ms, seen_ms=died_ms + before_ms + jump_ms)
    in_log = (BEGAN_MS, back_ms) if log_has_times else (0, 0)
    first, second = in_log_at(first, in_log[0]), in_log_at(second, in_log[1])
    absences.note(first, ())
    if jump_ms:
        absences.note_event(BEGAN_MS + before_ms + 1_000, 0, jump_ms)
    told = absences.note(second, members())
    assert told is not None
    assert (told.last_known, told.until_ms) == (LastKnown.SIGN_OF_LIFE, back_ms + ahead_ms)
    return told


@pytest.mark.parametrize("log_has_times", [True, False])
def test_clocks_that_agree(log_has_times: bool) -> None:
    assert away(0, log_has_times=log_has_times).longest_ms == AWAY_MS


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_an_outage_is_as_long_as_it_was_whichever_clock_is_off(ahead_ms: int) -> None:
    """The successor's, its predecessor's from the start or since a jump, or both."""
    told = [away(ahead_ms), away(0, before_ms=ahead_ms), away(0, jump_ms=ahead_ms), away(ahead_ms, before_ms=ahead_ms)]
    assert [each.longest_ms for each in told] == [AWAY_MS] * len(told)


def test_appends_that_took_long_are_no_clocks() -> None:
    """The event was written for a while before it was in the log."""
    assert away(-30_000).longest_ms == 0
    assert away(30_000).longest_ms == AWAY_MS + 30_000
