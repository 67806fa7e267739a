"""Identifies the processes of members."""

import msgspec
import pytest

from muster.events.causes import Cause
from muster.replay.incidents.episode.identity import Identities, Life
from muster.replay.incidents.grade import Grade
from muster.replay.incidents.windows import REPLACED_MS
from tests.replay.histories import Script
from tests.replay.whole import incidents


def test_a_member_that_joins_just_as_another_leaves_has_not_overlapped_it() -> None:
    """A millisecond earlier it has shared the address, and it is not known which process is which."""
    script = Script()
    one, other = (script.member(name, static=False, client_id="app") for name in ("a", "b"))
    for end_ms, grade in ((1_000, Grade.INFERRED), (1_001, Grade.UNKNOWN)):
        lives = [Life(member=one, begin_ms=0, end_ms=end_ms), Life(member=other, begin_ms=1_000)]
        assert {Identities(lives).process_of(each).grade for each in (one, other)} == {grade}


def test_an_instance_id_identifies_its_member_on_any_host() -> None:
    """On another host, with another client id, and beside itself."""
    script = Script()
    one = script.member("billing-1")
    other = msgspec.structs.replace(one, client_host="/10.0.0.99", client_id="another")
    lives = [Life(member=one, begin_ms=0), Life(member=other, begin_ms=10)]
    assert {Identities(lives).process_of(each).key for each in (one, other)} == {("instance", "billing-1")}


@pytest.mark.parametrize(
    ("after_ms", "kinds"),
    [(REPLACED_MS, ["start", "restart"]), (REPLACED_MS + 1, ["start", "scale-down", "scale-up"])],
)
def test_a_member_that_joins_at_the_end_of_the_limit_is_the_process_that_left(after_ms: int, kinds: list[str]) -> None:
    """A millisecond later it is a new process."""
    script = Script().created()
    stays, goes, comes = (script.member(name, static=False, client_id=name, host=f"/{name}") for name in "abb")
    script.start(script.joined(stays), script.joined(goes)).complete(cause=Cause.INITIAL_DELAY_ELAPSED).stabilize({})
    script.wait(1_000_000)
    script.start(script.removed(script.of("b"), Cause.MEMBER_LEFT)).complete(script.rejoined(stays)).stabilize({})
    script.wait(after_ms)
    script.start(script.joined(comes)).complete(script.rejoined(stays)).stabilize({})
    assert [each.kind for each in incidents(script.history())] == kinds


def test_processes_that_share_an_address_are_paired_in_order_although_the_clock_was_set_back() -> None:
    """They leave and come back one after another, and the clock is set back by an hour after the first one left."""
    script = Script().created()
    stays = script.member("a", static=False, client_id="a", host="/a")
    others = [script.member(name, static=False, client_id="app", host="/app") for name in ("one", "two", "three")]
    script.start(script.joined(stays), *map(script.joined, others)).complete(cause=Cause.INITIAL_DELAY_ELAPSED)
    script.stabilize({}).wait(1_000_000)
    for goes, set_back_ms in zip(others, (3_600_000, 0, 0), strict=True):
        left = script.removed(script.of(goes.member_id), Cause.MEMBER_LEFT)
        script.start(left).complete(script.rejoined(stays)).stabilize({}).wait(1_000 - set_back_ms)
    for name in ("four", "five", "six"):
        comes = script.member(name, static=False, client_id="app", host="/app")
        script.start(script.joined(comes)).complete(script.rejoined(stays)).stabilize({}).wait(1_000)
    found = incidents(script.history())
    assert [(each.kind, len(each.culprits)) for each in found] == [("start", 4), ("deployment", 4), ("restart", 2)]
    # How much later is not known: by the clock it came back before it left.
    assert found[-1].headline.startswith("'app' (app) left, then came back later: a restart or")
