"""How far the workers are, told to the process that waits for them: a small file of each task, in the scratch folder.

All workers see that folder, and Spark itself tells of a task no more than that it has ended. A task that is done again
writes the same file. What cannot be read yet is told the next time.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Final

from muster.replay.fleet.building.engines.engine import Took

EVERY_S: Final = 0.5
_NAME: Final = "folded-"


def reporting(folder: Path, task: int) -> Took:
    """Tell how many events a task has folded by now; `task`: its number."""
    path = folder / f"{_NAME}{task:06d}"
    told = 0.0

    def report(events: int) -> None:
        nonlocal told
        if monotonic() - told >= EVERY_S:
            path.write_text(str(events))
            told = monotonic()

    return report


def folded(folder: Path) -> int:
    """The events that all tasks have folded by now."""
    events = 0
    for path in folder.glob(f"{_NAME}*"):
        with suppress(ValueError, OSError):  # it is being written
            events += int(path.read_text())
    return events


@contextmanager
def told(folder: Path, watch: Took) -> Iterator[None]:
    """Tell `watch` how far the workers are, as long as this process waits for them."""
    is_over = Event()

    def tell() -> None:
        while not is_over.wait(EVERY_S):
            watch(folded(folder))

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()
