"""An address that looks like a process: connections stay open, and all break when it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class ProcessAddress:
    """`full`: connections are closed at once."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.accepted = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    @property
    def connections(self) -> int:
        return len(self._open)

    async def listen(self) -> None:
        """Listen on the same port as before."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def hang_up(self) -> None:
        """Close the connections, and keep accepting new ones."""
        for writer in self._open:
            writer.close()

    def end(self) -> None:
        """End, as the machine does for a killed process."""
        if self._server is not None:
            self._server.close()
        self.hang_up()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        if not self.full:
            self._open.add(writer)
            with suppress(OSError):
                await reader.read()
            self._open.discard(writer)
        writer.close()


@asynccontextmanager
async def listening(*, full: bool = False) -> AsyncIterator[ProcessAddress]:
    address = ProcessAddress(full=full)
    await address.listen()
    try:
        yield address
    finally:
        address.end()
