"""Windows of histories in which the wall clock jumped: incidents have times corrected for the jump."""

from muster.replay.fleet.simulation.world.rules import GROUP_ID
from muster.replay.history.items import Coordinated, Happened
from muster.replay.history.window import AtTime, Window
from muster.replay.incidents.incident import Incident
from muster.replay.report.fold import ReportFold
from muster.replay.results.why import Around, WhyFold
from tests.replay.incidents.fleet import QUIET_MS, Fleet

HOUR_MS = 3_600_000


def names(found: list[Incident]) -> list[str | None]:
    return [culprit.client_id for incident in found for culprit in incident.culprits]


def culprits_in(fleet: Fleet, window: Window) -> list[str | None]:
    """Return the culprits of the incidents in the window, after checking that the page has as many."""
    fold, page = WhyFold(GROUP_ID, window=window), ReportFold(GROUP_ID, window=window)
    found: list[Incident] = []
    for item in fleet.history().items:
        found += fold.feed(item)
        page.feed(item)
    found += fold.end()
    page.end()
    assert page.incidents == len(found)
    return names(found)


def last_ms(fleet: Fleet) -> int:
    """Return the wall clock time of the last event."""
    return max(item.at_ms for item in fleet.history().items[-1:] if isinstance(item, Happened))


def test_a_window_is_of_the_clock_that_the_log_has() -> None:
    """The clock jumps ahead by an hour between the joins of app-4 and app-5, and an edge may be within that hour."""
    fleet = Fleet(3)
    moments = []
    for number in (4, 5, 6):
        fleet.start(number)
        fleet.rest(QUIET_MS)
        moments.append(last_ms(fleet) + 1)
        if number == 4:
            fleet.world.rules.wall_offset_ms += HOUR_MS
    between = AtTime(moments[1])
    assert culprits_in(fleet, Window(since=between)) == ["app-6"]
    assert culprits_in(fleet, Window(since=AtTime(moments[1] - QUIET_MS), until=between)) == ["app-5"]
    in_the_jump = AtTime(moments[0] + HOUR_MS // 2)
    assert culprits_in(fleet, Window(since=in_the_jump)) == ["app-5", "app-6"]
    assert culprits_in(fleet, Window(until=in_the_jump))[-1] == "app-4"


def test_the_incident_at_a_time_is_found_after_a_clock_jump() -> None:
    """`--at` is by the log's clock, too."""
    fleet = Fleet(3)
    fleet.world.rules.wall_offset_ms += HOUR_MS
    for number in (4, 5):
        fleet.start(number)
        fleet.rest(QUIET_MS)
    fold = WhyFold(GROUP_ID, at=AtTime(last_ms(fleet)))
    choice = Around(fold)
    for item in fleet.history().items:
        for incident in fold.feed(item):
            choice.take(incident)
    for incident in fold.end():
        choice.take(incident)
    assert names(list(choice.end())) == ["app-5"]


def test_a_takeover_after_a_jump_is_in_the_windows_of_its_own_time() -> None:
    """The times of the new owner are not corrected for a jump of the former one's clock, and neither is the window."""
    fleet = Fleet(3)
    fleet.world.rules.wall_offset_ms += HOUR_MS
    fleet.start(4)
    fleet.rest(QUIET_MS)
    fleet.away(20_000)
    end = fleet.history().items[-1]
    assert isinstance(end, Coordinated)

    def kinds(window: Window) -> list[str]:
        fold, page = WhyFold(GROUP_ID, window=window), ReportFold(GROUP_ID, window=window)
        found: list[Incident] = []
        for item in fleet.history().items:
            found += fold.feed(item)
            page.feed(item)
        found += fold.end()
        page.end()
        assert page.incidents == len(found)
        return [each.kind for each in found]

    assert kinds(Window(since=AtTime(end.at_ms + HOUR_MS // 2))) == []
    assert kinds(Window(until=AtTime(end.at_ms + 1))) == ["start", "scale-up", "coordinator-change"]
