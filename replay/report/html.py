"""Renders the page's values as one HTML document of at most `PAGE_BYTES_MAX`."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, tzinfo
from typing import Final

from muster.replay.html.chart import Drawing
from muster.replay.html.document import PAGE_BYTES_MAX, kit, told_in, zone_name
from muster.replay.incidents.families import Family, family_of
from muster.replay.report.fold import ReportFold
from muster.replay.report.page import LIMITS, Page

INCIDENTS_ON_PAPER: Final = 12
ROWS_ON_PAPER: Final = 20
LANES_ON_PAPER: Final = 15
"""How many incidents, table rows and chart lanes are printed, so that the report takes at most ten sheets of paper.
"""


def document(page: Page, zone: tzinfo = UTC) -> str:
    """Return the document, whatever its length. `zone`: the initial zone of its times; UTC if the zone has no name."""
    drawing = Drawing(
        begin=page.begin_ms,
        end=page.end_ms,
        lanes=page.lanes,
        bands=page.bands,
        unstable=page.unstable,
        takeovers=page.takeovers,
        missing=tuple(each.at_ms for each in page.missing),
        incidents=tuple((each.begin_ms, each.end_ms, each.lanes) for each in page.stories),
        lanes_on_paper=LANES_ON_PAPER,
        opens_on=max(page.weightiest, key=lambda n: page.stories[n].weight[1:], default=None),
    )
    kinds = Counter(each.kind for each in page.stories)
    families = {family_of(kind) for kind in kinds}
    return kit("muster.replay", "report.html.j2").document(
        drawing,
        page=page,
        told=lambda at: told_in(at, zone),
        zone=zone_name(zone),
        kinds=sorted(kinds.items()),
        family=family_of,
        families=[each for each in Family if each in families],
        on_paper=_on_paper(page),
        rows_on_paper=ROWS_ON_PAPER,
    )


def _on_paper(page: Page) -> frozenset[int]:
    """Return the numbers of the incidents to print: those with the highest cost."""
    weights = sorted(range(len(page.stories)), key=lambda n: page.stories[n].weight, reverse=True)
    return frozenset(weights[:INCIDENTS_ON_PAPER])


def fitting(
    fold: ReportFold, log: str, *, made_ms: int, zone: tzinfo = UTC, damage: Sequence[str] = ()
) -> tuple[str, Page]:
    """Return the document with as much detail as fits, and the values on it."""
    limits = LIMITS
    while True:
        page = fold.page(log, made_ms=made_ms, limits=limits, damage=damage)
        text = document(page, zone)
        if len(text.encode()) <= PAGE_BYTES_MAX or limits.is_least:
            return text, page
        limits = limits.halved()
