"""Pauses and resumes reading from a socket, as back-pressure on its sender, and sends chunks."""

import asyncio


class Flow:
    """The reading of one socket. Safe after closing, unlike a transport of uvloop's."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._is_on = True

    def turn(self, *, on: bool) -> None:
        """Resume or pause reading."""
        if on is self._is_on or self._transport.is_closing():
            return
        self._is_on = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


JOINED_BYTES_MAX = 65_536
"""The size up to which chunks are joined: below it copying costs less than writing them one by one."""


def send_all(transport: asyncio.Transport, chunks: list[bytes]) -> int:
    """Send the chunks, and clear them; return the number of bytes.

    `writelines` would be one call, but in Python 3.12.0 to 3.13.1 asyncio's does not call `pause_writing` (gh-127655).
    """
    size = sum(map(len, chunks))
    if size <= JOINED_BYTES_MAX:
        transport.write(b"".join(chunks))
    else:
        for chunk in chunks:
            transport.write(chunk)
    chunks.clear()
    return size
