"""The common part of read-only logs: exports and archives.

Signs of life are stored alongside the events of the original log, and are not copied.
"""

from collections.abc import Mapping, Sequence

from muster.events.log.base import LogMismatch, LogWriter, Repeats, SignOfLife
from muster.events.records import FORMAT_LEVEL


class OnlyReadLog:
    """The writing methods of an EventLog, for a read-only log. `stored_in` names it in messages, such as 'the export
    a.jsonl'.
    """

    def __init__(self, stored_in: str) -> None:
        self._stored_in = stored_in

    @property
    def format_level(self) -> int:
        """This version's level, which is never used: nothing is written to a read-only log."""
        return FORMAT_LEVEL

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    @property
    def trouble(self) -> str | None:
        return None

    @property
    def supports_takeover(self) -> bool:
        return False

    @property
    def claim_renewal_ms(self) -> int | None:
        return None

    def stored_by(self, _partition: int) -> str:
        return self._stored_in

    async def close(self) -> None:
        """Do nothing: no file is kept open."""

    async def raise_format_level(self) -> None:
        raise self._refusal()

    async def claim(self, _partition: int) -> LogWriter:
        raise self._refusal()

    def repeat(self, writers: Sequence[LogWriter], *, timeout_ms: int) -> Repeats:  # noqa: ARG002 -- as in EventLog
        raise self._refusal()

    async def leave_sign_of_life(self, sign: SignOfLife, *, timeout_ms: int) -> None:  # noqa: ARG002 -- as in EventLog
        raise self._refusal()

    async def last_signs_of_life(self, *, timeout_ms: int) -> Mapping[str, int]:  # noqa: ARG002 -- as in EventLog
        return {}

    def _refusal(self) -> LogMismatch:
        return LogMismatch(f"{self._stored_in} can only be read")
