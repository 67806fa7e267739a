"""What is read from a socket, and what is sent to it.

What is not read waits at its sender, who stops when too much waits.
"""

import asyncio


class Flow:
    """One socket's. A transport of uvloop may not be asked for anything once it is closed; this may."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_on = True

    def turn(self, *, on: bool) -> None:
        """Read from the socket from here on, or read no more."""
        if on is self._is_on or self._transport.is_closing():
            return
        self._is_on = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


JOINED_BYTES_MAX = 65_536
"""Of chunks that are copied into one: below that it costs less than handing them over one by one."""


def send_all(transport: asyncio.Transport, chunks: list[bytes]) -> int:
    """Send the chunks, and clear them; returns how many bytes there were.

    `writelines` would be one call, but in Python 3.12.0 to 3.13.1 asyncio's tells
    nobody that too much waits (gh-127655).
    """
    size = sum(map(len, chunks))
    if size <= JOINED_BYTES_MAX:
        transport.write(b"".join(chunks))
    else:
        for chunk in chunks:
            transport.write(chunk)
    chunks.clear()
    return size
