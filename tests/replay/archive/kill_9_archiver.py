"""The process that `test_kill_9.py` kills: it writes a log, archives it for ever, and prints a dot after each run.

Usage: python -m tests.replay.archive.kill_9_archiver LOG ARCHIVE
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from muster.events.log.sqlite.log import SqliteEventLog
from muster.events.records import Record
from muster.replay.archive.local import archive

PARTITIONS = 3


async def main(path: Path, root: Path) -> None:
    log = SqliteEventLog(path, partitions=PARTITIONS)
    await log.open()
    writers = [await log.claim(partition) for partition in range(PARTITIONS)]
    for number in count():
        for writer in writers:
            value = b"v" * (200_000 if number % 7 == 0 else 100)
            await writer.append([(Record(b"key-%d" % n, value),) for n in range(1 + number % 5)])
        await archive(log, root, watch=lambda _done, _total: None)
        print(".", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
