"""Whether this process may open a file, and so accept a connection: found out by opening one now and then.

Files may run out although connections have a limit (open_files.py), as those of the whole machine. Then new
connections wait until one is free.
"""

import asyncio
import os

from muster.events.kafka.shortage import shortage, tell_not_accepted

LOOK_S = 1.0


class FreeFiles:
    """Whether a file is free: `shortage` says what has run out, with the way out. Any thread may ask."""

    def __init__(self) -> None:
        self.shortage: str | None = None

    async def keep_looking(self) -> None:
        """Look every second; while none is free there is a line a minute."""
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Open a file, of the process and of the machine, and close it."""
        try:
            os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            if shortage(error) is None:
                raise
            self.shortage = tell_not_accepted(error)
        else:
            self.shortage = None
