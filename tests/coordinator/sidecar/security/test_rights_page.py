"""The table of rights is complete, and the page has it as tested."""

from pathlib import Path
from typing import Final

from muster.coordinator.sidecar.relay.limits import SASL_AUTHENTICATE, SASL_HANDSHAKE
from tests.conformance.wire import API_KEYS
from tests.coordinator.sidecar.relay.test_hostile_requests import apis, sidecar
from tests.coordinator.sidecar.security.rights_table import ROWS, as_markdown

PAGE: Final = Path(__file__).parents[4] / "docs" / "sidecar-acls.md"
NEED_NONE: Final = {SASL_HANDSHAKE, SASL_AUTHENTICATE}


def test_the_page_has_the_table() -> None:
    """No more and no fewer rows."""
    _, _, section = PAGE.read_text(encoding="utf-8").partition("\n## The rights of clients\n")
    lines = section.partition("\n## ")[0].splitlines()
    assert [line for line in lines if line.startswith("|")] == as_markdown().splitlines()


async def test_all_that_is_handled_here_is_in_the_table() -> None:
    """A newly handled API has to list the rights that it needs."""
    async with sidecar() as relay:
        handled = {api.key for api in apis(relay)}
    assert handled - NEED_NONE <= {API_KEYS[row.api] for row in ROWS}


def test_no_row_occurs_twice() -> None:
    """Each is a test of its own."""
    assert len({str(row) for row in ROWS}) == len(ROWS)
