"""Watches the file of an event log: whether its disk responds, and whether it is still in place.

`events/log/sqlite/file.py` does the checks; this module calls them periodically and logs the results.
"""

import asyncio
from collections.abc import Callable

import structlog

from muster.coordinator.tasks import on_failure
from muster.events.log.sqlite.file import SqliteFile

log = structlog.get_logger(__name__)

CHECK_INTERVAL_S = 1.0
LOG_INTERVAL_S = 60.0


def watch_file(file: SqliteFile, *, lost: Callable[[Exception], None]) -> "asyncio.Task[None]":
    """Watch until the task is cancelled. `lost` is called with permanent errors: a file was removed or replaced."""
    watching = asyncio.create_task(_watch(file), name="file-watch")
    watching.add_done_callback(on_failure(lost))
    return watching


async def _watch(file: SqliteFile) -> None:
    loop = asyncio.get_running_loop()
    since_s = said_s = None
    while True:
        await asyncio.sleep(CHECK_INTERVAL_S)
        trouble, now_s = file.trouble, loop.time()
        if trouble is None and since_s is not None:
            log.info("the disk responds again", file=str(file.path), after_s=round(now_s - since_s))
            since_s = said_s = None
        elif trouble is not None and (said_s is None or now_s - said_s >= LOG_INTERVAL_S):
            since_s, said_s = since_s or now_s, now_s
            log.warning("the disk does not respond, waiting for it", file=str(file.path), reason=trouble)
        await file.check_in_place()
