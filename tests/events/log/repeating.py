"""Repeats of writers' last appends, all answers together."""

from muster.events.log.base import EventLog, LogWriter, Repeated


async def repeated(log: EventLog, *writers: LogWriter) -> dict[int, Repeated]:
    """Have these writers' last appends sent again, and return what became of them."""
    answers: dict[int, Repeated] = {}
    async for some in log.repeat(writers, timeout_ms=5_000):
        answers |= some
    return answers
