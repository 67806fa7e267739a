"""The registry of scripts: what each needs, and in which eras it runs."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tests.conformance.eras import ALL, Era
from tests.conformance.stage import Stage

Play = Callable[[Stage], Awaitable[None]]


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script; `rules` are the catalogue's numbers of what it shows, `topics` have to exist on both servers."""

    name: str
    play: Play
    eras: Sequence[Era]
    rules: str
    topics: Sequence[str]


SCRIPTS: Final[list[Script]] = []


def script(rules: str, *, eras: Sequence[Era] = ALL, topics: Sequence[str] = ()) -> Callable[[Play], Play]:
    """Register a script under the name of its function."""

    def register(play: Play) -> Play:
        name = play.__name__
        assert all(each.name != name for each in SCRIPTS), name
        SCRIPTS.append(Script(name=name, play=play, eras=eras, rules=rules, topics=topics))
        return play

    return register
