"""The page's values -> one HTML document of at most `PAGE_BYTES_MAX`, which asks no host for anything.

What clients sent is data: it is escaped by the template, and in the embedded JSON for a script's context. The policy in
the document allows the two inline texts by their hashes, and nothing else; so the document has no style attributes.
"""

import base64
import hashlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, tzinfo
from functools import cache
from importlib.metadata import version
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from jinja2 import BaseLoader, Environment, PackageLoader, StrictUndefined, Template

from muster import DISTRIBUTION
from muster.replay.incidents.families import Family, family_of
from muster.replay.report.fold import ReportFold
from muster.replay.report.page import LIMITS, Lane, Page, SpanOnPage
from muster.replay.text.times import Instant, in_zone, instant, zone_of

PAGE_BYTES_MAX: Final = 2_000_000
INCIDENTS_ON_PAPER: Final = 12
ROWS_ON_PAPER: Final = 20
LANES_ON_PAPER: Final = 15
"""The incidents, the rows of a table and the lanes of the chart that are printed, for ten pages of paper at most."""
_IN_SCRIPT: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&'\u2028\u2029"}


class _Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that the script draws; it reads texts about incidents in the document."""

    begin: int
    end: int
    lanes: tuple[Lane, ...]
    bands: tuple[msgspec.Struct, ...]
    unstable: tuple[SpanOnPage, ...]
    takeovers: tuple[msgspec.Struct, ...]
    missing: tuple[int, ...]
    incidents: tuple[tuple[int, int | None, tuple[int, ...]], ...]
    opens_on: int | None
    lanes_on_paper: int = LANES_ON_PAPER


def document(page: Page, zone: tzinfo = UTC) -> str:
    """The document, however long. `zone`: in which it tells times at first; in UTC if the zone has no name."""
    template, style, script = _parts()
    drawing = _Drawing(
        begin=page.begin_ms,
        end=page.end_ms,
        lanes=page.lanes,
        bands=page.bands,
        unstable=page.unstable,
        takeovers=page.takeovers,
        missing=tuple(each.at_ms for each in page.missing),
        incidents=tuple((each.begin_ms, each.end_ms, each.lanes) for each in page.stories),
        opens_on=max(page.weightiest, key=lambda n: page.stories[n].weight[1:], default=None),
    )
    kinds = Counter(each.kind for each in page.stories)
    families = {family_of(kind) for kind in kinds}
    return template.render(
        page=page,
        told=lambda at: told_in(at, zone),
        zone=zone_name(zone),
        kinds=sorted(kinds.items()),
        family=family_of,
        families=[each for each in Family if each in families],
        on_paper=_on_paper(page),
        rows_on_paper=ROWS_ON_PAPER,
        style=style,
        script=script,
        data=in_script(drawing),
        policy=policy(style, script),
        version=version(DISTRIBUTION),
    )


def _on_paper(page: Page) -> frozenset[int]:
    """The numbers of the incidents that are printed: those that cost most."""
    weights = sorted(range(len(page.stories)), key=lambda n: page.stories[n].weight, reverse=True)
    return frozenset(weights[:INCIDENTS_ON_PAPER])


def fitting(
    fold: ReportFold, log: str, *, made_ms: int, zone: tzinfo = UTC, damage: Sequence[str] = ()
) -> tuple[str, Page]:
    """The document of what was folded, with as much detail as there is room for; and the values that are on it."""
    limits = LIMITS
    while True:
        page = fold.page(log, made_ms=made_ms, limits=limits, damage=damage)
        text = document(page, zone)
        if len(text.encode()) <= PAGE_BYTES_MAX or limits.is_least:
            return text, page
        limits = limits.halved()


def in_script(value: object) -> str:
    """JSON that may stand in a script element: no end tag, no comment, no line separator can come of it."""
    return msgspec.json.encode(value).decode().translate(_IN_SCRIPT)


def policy(style: str, script: str | None = None) -> str:
    """The policy of a page with this style, and this script or none."""
    scripts = "'none'" if script is None else f"'{_hash(script)}'"
    return f"default-src 'none'; script-src {scripts}; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def zone_name(zone: tzinfo) -> str:
    """The name that a page may use for a zone; UTC if it has none."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key != "local" else "UTC"


def told_in(at: Instant, zone: tzinfo) -> str:
    """'2026-11-21 02:00:05.800 UTC', as the script writes it, too."""
    there = at if zone_name(zone) == "UTC" else in_zone(at, zone)
    return f"{there[:10]} {there[11:23]} {zone_of(there)}"


def templates(loader: BaseLoader) -> Environment:
    """Templates that escape what they are given."""
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(instant=instant)
    return environment


def style_and_script() -> tuple[str, str]:
    """The style, which other pages have, too, and the script."""
    loader = PackageLoader("muster.replay", "report")
    style, script = (loader.get_source(Environment(), name)[0] for name in ("report.css", "report.js"))  # noqa: S701
    return style, script


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


@cache
def _parts() -> tuple[Template, str, str]:
    """The template, the style and the script."""
    return templates(PackageLoader("muster.replay", "report")).get_template("report.html.j2"), *style_and_script()
