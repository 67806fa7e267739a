"""The histories of real clients in `data/`: an export each, and the truth of what was done (`record_clients.py`)."""

from pathlib import Path
from typing import Final

import msgspec

from muster.replay.text.times import Instant

DATA: Final = Path(__file__).with_name("data")
TRUTH: Final = ".truth.json"


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """An action: the correct kinds, the client ids of the processes, and when it began.

    `at` is in UTC; None: not recorded.
    """

    what: str
    kinds: tuple[str, ...]
    processes: tuple[str, ...]
    at: Instant | None = None


class Truth(msgspec.Struct, frozen=True, kw_only=True):
    """All actions of a session, in order."""

    group: str
    done: tuple[Done, ...]


def sessions() -> list[str]:
    """Return the names of all recorded sessions."""
    return sorted(path.name.removesuffix(TRUTH) for path in DATA.glob(f"*{TRUTH}"))


def truth_of(name: str) -> Truth:
    return msgspec.json.decode((DATA / f"{name}{TRUTH}").read_bytes(), type=Truth)
