"""Makes a self-contained HTML document from a template and values. It loads nothing from any host.

Client input is data: the template escapes it, and in the embedded JSON it is escaped for a script context. The
document's Content-Security-Policy allows the inline style and script by their hashes, and nothing else; so the document
has no style attributes.
"""

import base64
import hashlib
from datetime import tzinfo
from functools import cache
from importlib.metadata import version
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from muster import DISTRIBUTION
from muster.replay.html.chart import Drawing
from muster.replay.text.printable import printable
from muster.replay.text.times import Instant, in_zone, instant, zone_of

PAGE_BYTES_MAX: Final = 2_000_000
TEXT_MAX: Final = 400
"""The maximum length in characters of any text from a client; a client id may have 32 KiB."""
_IN_SCRIPT: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&'\u2028\u2029"}


class Kit(msgspec.Struct, frozen=True):
    """The template of a page, and its style."""

    template: Template
    style: str

    def document(self, drawing: Drawing | None = None, **values: Any) -> str:  # noqa: ANN401 -- as jinja takes them
        """Render the document; without a drawing it has no script."""
        script = None if drawing is None else _text(_BASE, "chart.js")
        return self.template.render(
            values,
            style=self.style,
            script=script,
            data=None if drawing is None else in_script(drawing),
            policy=policy(self.style, script),
            version=version(DISTRIBUTION),
        )


@cache
def kit(package: str, template: str, style: str | None = None) -> Kit:
    """Load a template from a package's `report/`, on top of the base of all pages. `style` is added to that of the
    base.
    """
    own = PackageLoader(package, "report")
    environment = Environment(
        loader=ChoiceLoader((own, _BASE)),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(instant=instant)
    added = "" if style is None else _text(own, style)
    return Kit(environment.get_template(template), _text(_BASE, "page.css") + added)


_BASE: Final = PackageLoader("muster.replay", "html")


def _text(loader: PackageLoader, name: str) -> str:
    return loader.get_source(Environment(), name)[0]  # noqa: S701 -- a raw file, not a template


def shown(text: str, most: int = TEXT_MAX) -> str:
    """Return the text without control characters and at most `most` characters long, with a count if it was cut."""
    cut = printable(text[:most])[:most]
    if len(cut) == most and (len(text) > most or cut != text):
        return f"{cut}… ({len(text):,} characters)"
    return cut


def in_script(value: object) -> str:
    """Encode as JSON that is safe in a script element: it cannot contain an end tag, a comment or a line separator."""
    return msgspec.json.encode(value).decode().translate(_IN_SCRIPT)


def policy(style: str, script: str | None = None) -> str:
    """Return the Content-Security-Policy of a page with this style, and this script or none."""
    scripts = "'none'" if script is None else f"'{_hash(script)}'"
    return f"default-src 'none'; script-src {scripts}; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def zone_name(zone: tzinfo) -> str:
    """Return the name to use for a zone in a page; UTC if it has no name."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key != "local" else "UTC"


def told_in(at: Instant, zone: tzinfo) -> str:
    """'2026-11-21 02:00:05.800 UTC', in the same form as the script."""
    there = at if zone_name(zone) == "UTC" else in_zone(at, zone)
    return f"{there[:10]} {there[11:23]} {zone_of(there)}"
