"""The receive buffer: bytes from a socket, to be cut into frames or passed on.

Bytes that are passed on are not copied if a whole chunk is sent, and are copied once if a chunk has to be cut.

A frame that arrives in many chunks is gathered as it arrives, and not copied again when it is complete: for a request
of 64 MB that would block the loop for about 80 ms and need three times the memory. So the length in front of it is kept
separately, and a `BytesIO` gathers the rest, whose bytes can be taken out without a copy.
"""

from io import BytesIO

READ_BYTES_MAX = 65_536
"""At most this many bytes of a chunk stay in memory after they were read, because unread bytes follow them."""


_LENGTH_BYTES = 4
"""The length in front of a frame. Where the buffer splits chunks affects only what has to be copied."""


class Incoming:
    """The buffer of one socket. `waiting_bytes`: received, but neither taken nor passed on."""

    def __init__(self) -> None:
        self._data = b""  # the chunk that frames are being cut from
        self._at = 0  # offset of its first unread byte
        self._tail = BytesIO()  # bytes that arrived after `_data`; joined with it when both are needed in one piece
        self._tail_bytes = 0

    @property
    def waiting_bytes(self) -> int:
        return len(self._data) - self._at + self._tail_bytes

    @property
    def in_place(self) -> tuple[bytes, int]:
        """Return bytes that can be read without joining chunks, and the position of the first unread one."""
        return self._data, self._at

    @property
    def is_split(self) -> bool:
        """True if there are more bytes than `in_place` returns."""
        return bool(self._tail_bytes)

    def skip_to(self, at: int) -> None:
        """Drop what was read in place."""
        if at == len(self._data):
            self._data, self._at = b"", 0  # it may be long, and nothing more may arrive for a while
        elif at > READ_BYTES_MAX and at > len(self._data) // 2:
            self._data, self._at = self._data[at:], 0  # likewise if only the beginning of the next request follows
        else:
            self._at = at

    def add(self, data: bytes) -> None:
        if self._tail_bytes:
            self._tail_bytes += self._tail.write(data)
        elif self._at == len(self._data):
            self._data, self._at = data, 0
        else:
            begun = self._data[self._at :]
            self._data, self._at = begun[:_LENGTH_BYTES], 0
            self._tail_bytes = self._tail.write(begun[_LENGTH_BYTES:]) + self._tail.write(data)

    def has(self, size: int) -> bool:
        """Return whether this many bytes can be read or taken."""
        return self.waiting_bytes >= size

    def peek(self, size: int) -> bytes:
        """Return at most that many of the next bytes, and keep them."""
        found = self._data[self._at : self._at + size]
        if self._tail_bytes and len(found) < size:
            found += bytes(self._tail.getbuffer()[: size - len(found)])
        return found

    def join(self, size: int) -> bool:
        """Make that many bytes readable in place; return whether they have arrived."""
        if len(self._data) - self._at >= size:
            return True
        if self.waiting_bytes < size:
            return False
        self._data, self._at = self._data[self._at :] + self._take_tail(), 0
        return True

    def take(self, size: int) -> bytes:
        """Remove and return the next bytes; there must be that many (see `has`)."""
        if len(self._data) - self._at < size:
            self.join(size)
        data, at = self._data, self._at
        self.skip_to(at + size)
        if at == 0 and size == len(data):
            return data
        return data[at : at + size]

    def pass_on(self, size: int, out: list[bytes]) -> int:
        """Move at most that many bytes to `out`; return their number."""
        moved = 0
        while moved < size:
            left = len(self._data) - self._at
            if not left:
                if not self._tail_bytes:
                    break
                self._data, self._at = self._take_tail(), 0
                continue
            part = min(left, size - moved)
            out.append(self.take(part))
            moved += part
        return moved

    def _take_tail(self) -> bytes:
        tail = self._tail.getvalue()
        self._tail, self._tail_bytes = BytesIO(), 0
        return tail
