"""One HTML document of a template and its values. It asks no host for anything.

What clients sent is data: the template escapes it, and in the embedded JSON it is escaped for a script's context. The
policy in the document allows the inline style and script by their hashes, and nothing else; so the document has no
style attributes.
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
"""Characters of any text that a client has a say in; a client id may have 32 KiB."""
_IN_SCRIPT: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&'\u2028\u2029"}


class Kit(msgspec.Struct, frozen=True):
    """The template of a page, and its style."""

    template: Template
    style: str

    def document(self, drawing: Drawing | None = None, **values: Any) -> str:  # noqa: ANN401 -- as jinja takes them
        """The document; without a drawing it has no script."""
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
def kit(package: str, folder: str, template: str, style: str | None = None) -> Kit:
    """A template in a folder of a package, on the base of all pages. `style` is added to that of the base."""
    own = PackageLoader(package, folder)
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
    return loader.get_source(Environment(), name)[0]  # noqa: S701 -- a file as it is, no template


def shown(text: str, most: int = TEXT_MAX) -> str:
    """The text without control characters, and of a bounded length; what is cut off is counted."""
    cut = printable(text[:most])[:most]
    if len(cut) == most and (len(text) > most or cut != text):
        return f"{cut}… ({len(text):,} characters)"
    return cut


def in_script(value: object) -> str:
    """JSON that may stand in a script element: no end tag, no comment, no line separator can come of it."""
    return msgspec.json.encode(value).decode().translate(_IN_SCRIPT)


def policy(style: str, script: str | None = None) -> str:
    """The policy of a page with this style, and this script or none."""
    scripts = "'none'" if script is None else f"'{_hash(script)}'"
    return f"default-src 'none'; script-src {scripts}; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def zone_name(zone: tzinfo) -> str:
    """The name that a page may use for a zone; UTC if it has none."""
    return zone.key if isinstance(zone, ZoneInfo) and zone.key != "local" else "UTC"


def told_in(at: Instant, zone: tzinfo) -> str:
    """'2026-11-21 02:00:05.800 UTC', as the script writes it, too."""
    there = at if zone_name(zone) == "UTC" else in_zone(at, zone)
    return f"{there[:10]} {there[11:23]} {zone_of(there)}"
