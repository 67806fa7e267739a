"""Each kind has a family, and each family has a readable colour, the same on all pages."""

import re
from pathlib import Path

import pytest

from muster.replay.incidents.families import KINDS_OF, Family, family_of
from muster.replay.incidents.kinds import KINDS

STYLE = (Path(__file__).parents[3] / "replay" / "html" / "page.css").read_text(encoding="utf-8")
BACKGROUNDS = {"light": ("#ffffff", "#f6f8fa"), "dark": ("#0d1117", "#161b22"), "paper": ("#ffffff",)}
LEGIBLE = 4.5
"""The contrast that WCAG requires for text (AA)."""


def test_each_kind_is_of_a_family() -> None:
    """Add a new kind to a family in replay/incidents/families.py; only the unknown kind has the family UNKNOWN."""
    assert [kind.name for kind in KINDS if family_of(kind.name) is Family.UNKNOWN] == ["unknown"]
    reported = [kind for kinds in KINDS_OF.values() for kind in kinds]
    assert len(reported) == len(set(reported))
    assert family_of("a-kind-of-tomorrow") is Family.UNKNOWN


@pytest.mark.parametrize("family", Family)
def test_a_family_has_a_colour_that_can_be_read_in_light_in_the_dark_and_on_paper(family: Family) -> None:
    """And each family has a different colour."""
    assert f".f-{family} {{ --incident: var(--{family}); }}" in STYLE
    colours = re.findall(rf"--{family}: (#[0-9a-f]{{6}});", STYLE)
    for colour, backgrounds in zip(colours, BACKGROUNDS.values(), strict=True):
        assert STYLE.count(f": {colour};") <= len(colours)
        for background in backgrounds:
            assert _contrast(colour, background) >= LEGIBLE, (colour, background)


def _contrast(one: str, other: str) -> float:
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
