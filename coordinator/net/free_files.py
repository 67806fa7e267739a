"""Checks whether this process can open a file, and so accept a connection, by opening one periodically.

File descriptors may run out in spite of the connection limit (open_files.py), for example on the whole machine. New
connections then wait until one is free.
"""

import asyncio
import os

from muster.events.kafka.shortage import log_not_accepted, shortage

LOOK_S = 1.0


class FreeFiles:
    """`shortage` names the kind of file that has run out and how to fix it; None if one is free. Any thread may read
    it.
    """

    def __init__(self) -> None:
        self.shortage: str | None = None

    async def keep_checking(self) -> None:
        """Check every second; while none is free, log a line a minute."""
        while True:
            self.check()
            await asyncio.sleep(LOOK_S)

    def check(self) -> None:
        """Open a file, which counts for the process and the machine, and close it."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if shortage(error) is None:
                raise
            self.shortage = log_not_accepted(error)
        else:
            self.shortage = None
