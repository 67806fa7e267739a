"""A read-only log claims nothing, and says so."""

import pytest

from muster.events.log.base import LogMismatch, SignOfLife
from muster.events.log.only_read import OnlyReadLog
from muster.events.records import FORMAT_LEVEL


async def test_a_read_only_log_says_so() -> None:
    """It has no owner, no trouble, and no signs of life."""
    log = OnlyReadLog("the export a.jsonl")
    assert (log.format_level, log.warnings, log.trouble) == (FORMAT_LEVEL, (), None)
    assert (log.supports_takeover, log.claim_renewal_ms) == (False, None)
    assert log.stored_by(3) == "the export a.jsonl"
    assert await log.last_signs_of_life(timeout_ms=1) == {}
    await log.close()
    for refused in (
        log.raise_format_level(),
        log.claim(0),
        log.leave_sign_of_life(SignOfLife(owner="o", wall_ms=1), timeout_ms=1),
    ):
        with pytest.raises(LogMismatch, match=r"^the export a\.jsonl can only be read$"):
            await refused
    with pytest.raises(LogMismatch, match="can only be read"):
        log.repeat([], timeout_ms=1)
