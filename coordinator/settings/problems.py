"""Everything that is wrong with settings, gathered, so that all of it is told at once.

What belongs here: gathering. What it must not know: which settings there are.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from muster.coordinator.settings.sidecar_tls import BadTls
from muster.events.kafka.security import BadSecurity


class Unusable(Exception):
    """Something given cannot be used; the message is one line."""


class Problems:
    """The lines, each once, in the order in which they were found."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._muted: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, line: str) -> None:
        """Note a problem, unless it is about a setting that has one already."""
        if line not in self.lines and not any(line.startswith(name) for name in self._muted):
            self.lines.append(line)

    def add_all(self, lines: Iterable[str]) -> bool:
        """Note each, and what is raised while they are found; returns whether there were any."""
        before = len(self.lines)
        with self.noted():
            for line in lines:
                self.add(line)
        return len(self.lines) > before

    def mute(self, names: Iterable[str]) -> None:
        """Note no more problems of these settings: they have their defaults, which nobody has given."""
        self._muted += [f"{name}{end}" for name in names for end in "= "]

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note what is raised within, for each reason for which a setting cannot be used."""
        try:
            yield
        except (Unusable, BadSecurity, BadTls) as error:
            self.add(str(error))
