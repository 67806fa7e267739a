"""A process's diary: what it knows about itself, by the wall clock of the machine, which is Muster's, too.

Has the entries, writing and reading them, and the watch, which notes when the process was paused. An entry is a line of
JSON, written immediately, so that it survives kill -9. The watch is a thread that sleeps for `LOOK_S` and notes when it
woke much later: the process was not scheduled, or was stopped.
"""

import threading
import time
from enum import StrEnum, unique
from pathlib import Path
from typing import Final

import msgspec

LOOK_S: Final = 0.05
LATE_MS: Final = 300
"""Later than that is noted."""


@unique
class What(StrEnum):
    """The kinds of entries."""

    STARTED = "started"
    OPENED = "opened"
    """Its consumer is there, and begins to join."""
    ASSIGNED = "assigned"
    LATE = "late"
    """It was paused from `from_ms` on."""
    STALLED = "stalled"
    """It has not polled since `from_ms`, as ordered."""
    RESUBSCRIBED = "resubscribed"
    """It had no subscription since `from_ms`, as ordered, and subscribes again."""
    FENCED = "fenced"
    FAILED = "failed"
    """Its consumer could not continue."""
    CLOSED = "closed"


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was so at `at_ms`, wall clock."""

    what: What
    at_ms: int
    from_ms: int = 0
    pid: int = 0
    member_id: str = ""
    partitions: tuple[int, ...] = ()
    said: str = ""


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Diary:
    """Writes entries; any thread may."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def note(self, what: What, *, at_ms: int | None = None, **fields: object) -> None:
        entry = Entry(what=what, at_ms=wall_ms() if at_ms is None else at_ms, **fields)  # type: ignore[arg-type]
        self._file.write(msgspec.json.encode(entry) + b"\n")

    def watch(self) -> None:
        """Start noting when the process is paused."""
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    def _watch(self) -> None:
        while True:
            before_s = time.monotonic()
            time.sleep(LOOK_S)
            late_ms = int((time.monotonic() - before_s - LOOK_S) * 1_000)
            if late_ms > LATE_MS:
                now_ms = wall_ms()
                self.note(What.LATE, at_ms=now_ms, from_ms=now_ms - late_ms - int(LOOK_S * 1_000))


def read_diary(path: Path) -> list[Entry]:
    """The whole lines; none if there is no diary yet."""
    if not path.exists():
        return []
    *lines, _ = path.read_bytes().split(b"\n")
    return [msgspec.json.decode(line, type=Entry) for line in lines]
