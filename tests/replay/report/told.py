"""Histories for reports, and the reports of histories."""

from muster.events.causes import Cause
from muster.replay.report.fold import ReportFold
from muster.replay.report.html import fitting
from muster.replay.report.page import LIMITS, Limits, Page
from tests.replay.histories import Script
from tests.replay.whole import History

MADE_MS = 1_795_240_000_000
"""2026-11-21T05:46:40Z."""


def page_of(history: History, limits: Limits = LIMITS) -> Page:
    """Return the values of a history's page."""
    return _folded(history).page(history.log, made_ms=MADE_MS, limits=limits)


def document_of(history: History) -> str:
    """Return the document of a history."""
    return fitting(_folded(history), history.log, made_ms=MADE_MS)[0]


def _folded(history: History) -> ReportFold:
    fold = ReportFold(history.group_id)
    for item in history.items:
        fold.feed(item)
    fold.end()
    return fold


def busy(events: int, members: int = 20) -> Script:
    """Return a group of static members that are lost and rejoin one after another, until there are this many events."""
    names = [f"app-{number}" for number in range(members)]
    script = Script("busy").coordinator("coordinator-a:100").wait(1_000).created()
    script.start(*(script.joined(script.member(name, host=f"/10.0.1.{n}")) for n, name in enumerate(names)))
    _settle(script, members)
    turn = 0
    while script.group.seq < events:
        name = names[turn % members]
        turn += 1
        script.wait(900_000 if turn % 5 == 0 else 20_000)
        script.start(script.removed(script.of(name), Cause.SESSION_EXPIRED, silent_ms=45_010))
        _settle(script, members)
        script.wait(30_000)
        script.start(script.joined(script.member(name, host=f"/10.0.1.{turn % members}")))
        _settle(script, members)
    return script


def _settle(script: Script, members: int) -> None:
    """Let all rejoin; each has twelve partitions of its own, and the others share those of lost members."""
    script.wait(1_500).complete()
    names = [member.name for member in script.group.members.values()]
    shares = {name: list(range(12 * _number(name), 12 * _number(name) + 12)) for name in names}
    lost = set(range(12 * members)) - {partition for share in shares.values() for partition in share}
    for turn, partition in enumerate(sorted(lost)):
        shares[names[turn % len(names)]].append(partition)
    script.wait(60).stabilize({name: {"orders": share} for name, share in shares.items()})


def _number(name: str) -> int:
    return int(name.removeprefix("app-"))


def hostile(text: str) -> Script:
    """Return a group whose members have these names, in all fields that a client can set."""
    script = Script(text).coordinator("coordinator-a:100").wait(1_000).created()
    static = script.member(text, host=text, client_id=text)
    dynamic = script.member("dynamic", static=False, host=f"/{text}", client_id=text)
    script.start(script.joined(static, reason=text), script.joined(dynamic, reason=text))
    script.wait(100).complete()
    script.stabilize({text: {text[:200]: [0, 1]}, dynamic.member_id: {text[:200]: [2]}})
    script.wait(60_000).start(script.removed(static, Cause.SESSION_EXPIRED, silent_ms=45_000))
    script.wait(100).complete().stabilize({dynamic.member_id: {text[:200]: [0, 1, 2]}})
    return script
