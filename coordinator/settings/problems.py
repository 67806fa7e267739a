"""Collects all problems with settings, so that they are reported at once."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from muster.coordinator.settings.sidecar_tls import BadTls
from muster.events.kafka.security import BadSecurity


class Unusable(Exception):
    """A given value is unusable; the message is one line."""


class Problems:
    """The problems' lines, without duplicates, in the order in which they were found."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._muted: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, line: str) -> None:
        """Note a problem, unless its setting is muted."""
        if line not in self.lines and not any(line.startswith(name) for name in self._muted):
            self.lines.append(line)

    def add_all(self, lines: Iterable[str]) -> bool:
        """Note each line, and any error raised by the iterator; return whether there were any."""
        before = len(self.lines)
        with self.noted():
            for line in lines:
                self.add(line)
        return len(self.lines) > before

    def mute(self, names: Iterable[str]) -> None:
        """Note no more problems of these settings: they now have their defaults, not what was given."""
        self._muted += [f"{name}{end}" for name in names for end in "= "]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the exceptions for unusable settings that are raised in the block."""
        try:
            yield
        except (Unusable, BadSecurity, BadTls) as error:
            self.add(str(error))
