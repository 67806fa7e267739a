"""The receive buffer: bytes from a socket, to be cut into frames or passed on.

Bytes that are passed on are not copied when a whole chunk goes, and once when a chunk has to be cut.
"""

READ_BYTES_MAX = 65_536
"""The most of a chunk that is kept after it was read, because of unread bytes behind it."""


class Incoming:
    """The buffer of one socket. `waiting_bytes`: received, and neither taken nor passed on."""

    def __init__(self) -> None:
        self._data = b""  # what is being cut ...
        self._at = 0  # ... from here on
        self._tail = bytearray()  # what came after `_data`, joined with it only when it completes what is asked for

    @property
    def waiting_bytes(self) -> int:
        return len(self._data) - self._at + len(self._tail)

    @property
    def in_place(self) -> tuple[bytes, int]:
        """Return bytes that can be read without joining chunks, and the position of the first unread one."""
        return self._data, self._at

    @property
    def is_split(self) -> bool:
        """Whether there are more bytes than `in_place` returns."""
        return bool(self._tail)

    def skip_to(self, at: int) -> None:
        """Drop what was read in place."""
        if at == len(self._data):
            self._data, self._at = b"", 0  # it may be long, and nothing more come for a while
        elif at > READ_BYTES_MAX and at > len(self._data) // 2:
            self._data, self._at = self._data[at:], 0  # nor more than the beginning of what comes next
        else:
            self._at = at

    def add(self, data: bytes) -> None:
        if self._at == len(self._data) and not self._tail:
            self._data, self._at = data, 0
        else:
            self._tail += data

    def has(self, size: int) -> bool:
        """Whether that many bytes can be looked at or taken."""
        if len(self._data) - self._at >= size:
            return True
        if self.waiting_bytes < size:
            return False
        self._data = self._data[self._at :] + self._tail
        self._at = 0
        self._tail = bytearray()
        return True

    def look(self, size: int) -> bytes:
        """Return at most that many of the next bytes, and keep them."""
        if self._tail:
            self.has(min(size, self.waiting_bytes))
        return self._data[self._at : self._at + size]

    def take(self, size: int) -> bytes:
        """Remove and return the next bytes; there must be that many (see `has`)."""
        data, at = self._data, self._at
        self.skip_to(at + size)
        if at == 0 and size == len(data):
            return data
        return data[at : at + size]

    def pass_on(self, size: int, out: list[bytes]) -> int:
        """Move at most that many bytes to `out`; returns their number."""
        moved = 0
        while moved < size:
            left = len(self._data) - self._at
            if not left:
                if not self._tail:
                    break
                self._data, self._at, self._tail = bytes(self._tail), 0, bytearray()
                continue
            part = min(left, size - moved)
            out.append(self.take(part))
            moved += part
        return moved
