"""Members that fall silent during a play."""

from muster.events.causes import Cause
from muster.events.events import MemberRemoved
from muster.replay.whatif.departures import Departures, Falling
from muster.replay.whatif.facts import Fact
from tests.replay.histories import Script


def test_a_member_is_silent_from_just_after_it_was_last_seen() -> None:
    """Not at that time itself: its last request may be the one that is played. It is yielded once."""
    script = Script().created()
    script.start(script.joined(script.member("a"))).complete().stabilize({"a": {"orders": [0]}})
    removed = script.wait(60_000).removed(script.of("a"), Cause.SESSION_EXPIRED, silent_ms=45_000)
    assert isinstance(removed, MemberRemoved)
    departures = Departures()
    departures.note(Fact(command=None, events=(removed,)))
    falling = Falling(departures, removed.last_seen_ms - 1)
    assert not list(falling.until(removed.last_seen_ms))
    assert [each.member.member_id for each in falling.until(removed.last_seen_ms + 1)] == [removed.member.member_id]
    assert not list(falling.until(removed.last_seen_ms + 2))
