"""The tables of `docs/clients.md`, generated from the facts.

A table is between two marks, `<!-- name -->` and `<!-- /name -->`.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from tests.clients.endings.facts import Fact, Return
from tests.clients.endings.given import Act, Family, Way

PAGE: Final = Path(__file__).parents[3] / "docs" / "clients.md"
UNKNOWN_MEMBER_ID: Final = 25
_ENDINGS: Final = [act for act in Act if not act.returns and act is not Act.PROXY_KILL]
_RETURNS: Final = [act for act in Act if act.returns]
_PROXIES: Final[Sequence[Way]] = (Way.SOCAT, Way.HAPROXY)
_APIS: Final = ("FindCoordinator", "JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit", "OffsetFetch", "Fetch")


def written(text: str, facts: Sequence[Fact]) -> str:
    """The page with the tables for these facts."""
    for name, table in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + table(facts) + end + after
    return text


def versions(facts: Sequence[Fact]) -> str:
    """Each family, and the requests on each of its connections."""
    lines = ["| family | version | connections of a member, and what each carries |", "|---|---|---|"]
    for family in Family:
        of = [each for each in facts if each.family is family and each.way is Way.DIRECT]
        if of:
            lines.append(f"| {family} | {of[0].version} | {_roles(of[0])} |")
    return _text(lines)


def _roles(fact: Fact) -> str:
    carried = [", ".join(api for api in _APIS if api in apis) for apis in fact.roles]
    reported = [each for each in carried if each]
    return "; ".join(f"{number}: {each}" for number, each in enumerate(sorted(reported, key=_beats_first), 1))


def _beats_first(reported: str) -> bool:
    """Sort the connection that heartbeats before the others."""
    return "Heartbeat" not in reported


def endings(facts: Sequence[Fact]) -> str:
    return _by_family(facts, _ENDINGS, _ending)


def returns(facts: Sequence[Fact]) -> str:
    return _by_family(facts, _RETURNS, _return)


def reasons(facts: Sequence[Fact]) -> str:
    """The reason texts of each LeaveGroup."""
    lines = ["| family | LeaveGroup | reason that it gives |", "|---|---|---|"]
    for family in Family:
        left = [(each.act, each.left) for each in facts if each.family is family and each.left is not None]
        if not left:
            continue
        by_reason: dict[str, list[str]] = {}
        for act, leave in left:
            acts = by_reason.setdefault("none" if leave.reason is None else f'"{leave.reason}"', [])
            if act not in acts:
                acts.append(act)
        text = "; ".join(f"{reason} ({', '.join(acts)})" for reason, acts in by_reason.items())
        lines.append(f"| {family} | v{left[0][1].version} | {text} |")
    return _text(lines)


def logged(facts: Sequence[Fact]) -> str:
    """Muster's own record of each."""
    return _by_family(facts, [*_ENDINGS, *_RETURNS], lambda fact: fact.logged)


def agreement(facts: Sequence[Fact]) -> str:
    """How often that agreed with the observations, and where it did not."""
    others = [each for each in facts if each.disagreements]
    reported = [f"In {len(facts) - len(others)} of {len(facts)} trials the log said what was seen at the socket."]
    reported += [f"* {each.family}, {each.act}: {'; '.join(each.disagreements)}" for each in others]
    return _text(reported)


def proxies(facts: Sequence[Fact]) -> str:
    """The view from the last hop."""
    found = {(each.act, each.way, each.is_static, each.family): each for each in facts}
    families = [family for family in Family if any(each.family is family and each.way in _PROXIES for each in facts)]
    lines = ["| act | way | member | " + " | ".join(families) + " |", "|" + "---|" * (3 + len(families))]
    for act, way, is_static in product(Act, _PROXIES, (False, True)):
        row = [found.get((act, way, is_static, family)) for family in families]
        if any(row):
            cell = _return if act.returns else _ending
            cells = ["" if each is None else cell(each) for each in row]
            lines.append(f"| {act} | {way} | {_sort(is_static)} | " + " | ".join(cells) + " |")
    return _text(lines)


TABLES: Final[dict[str, Callable[[Sequence[Fact]], str]]] = {
    "versions": versions,
    "endings": endings,
    "returns": returns,
    "reasons": reasons,
    "proxies": proxies,
    "logged": logged,
    "agreement": agreement,
}


def _by_family(facts: Iterable[Fact], acts: Sequence[Act], cell: Callable[[Fact], str]) -> str:
    direct = {(each.act, each.is_static, each.family): each for each in facts if each.way is Way.DIRECT}
    families = [family for family in Family if any(of is family for _, _, of in direct)]
    lines = ["| act | member | " + " | ".join(families) + " |", "|" + "---|" * (2 + len(families))]
    for act in acts:
        for is_static in (False, True):
            found = [direct.get((act, is_static, family)) for family in families]
            if any(found):
                cells = ["" if each is None else cell(each) for each in found]
                lines.append(f"| {act} | {_sort(is_static)} | " + " | ".join(cells) + " |")
    return _text(lines)


def _sort(is_static: bool) -> str:
    return "static" if is_static else "dynamic"


def _ending(fact: Fact) -> str:
    leaves = [] if fact.left is None else [f"LeaveGroup {_time(fact.left.after_ms)}"]
    ends = "open" if fact.end is None else f"{fact.end.how} {_time(fact.end.after_ms)}"
    return ", ".join([*leaves, ends])


def _return(fact: Fact) -> str:
    if fact.returned is None:
        return f"{_ending(fact)}; does not come back"
    parts = []
    undone_ms = fact.undone_ms or 0
    if fact.left is not None and fact.left.after_ms <= undone_ms:
        parts.append(f"LeaveGroup {_time(fact.left.after_ms)}")
    elif fact.act is Act.LATE_POLL and fact.returned.joined:
        parts.append(f"last heartbeat {_time(fact.last_beat_ms)}")
    if fact.end is not None and fact.end.after_ms <= undone_ms:
        parts.append(f"{fact.end.how} {_time(fact.end.after_ms)}")
    else:
        parts.append("open")
    parts.append(_way_back(fact.returned))
    if fact.end is not None and fact.end.after_ms > undone_ms:
        parts.append(f"the old one {fact.end.how} {_time(fact.end.after_ms - undone_ms)} later")
    return ", ".join(parts)


def _way_back(back: Return) -> str:
    if not back.joined:
        return "heartbeats go on" + ("" if back.beats_on_own else " on a new connection")
    refused = " after a refused heartbeat" if UNKNOWN_MEMBER_ID in back.refusals else ""
    where = "the same" if back.join_on_own else "another one that it had" if back.join_on_old else "a new one"
    kept = " with the old member id" if back.has_old_id else ""
    return f"joins on {where}{refused}{kept}"


def _time(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
