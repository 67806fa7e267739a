"""The registry of scripts: the pair of servers and the eras of each."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from tests.conformance.eras import ALL, Era
from tests.conformance.servers import Setup
from tests.conformance.stage import Stage

Play = Callable[[Stage], Awaitable[None]]


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A script; `rules` are the catalogue's numbers that it covers, `setup` the pair of servers it is played on.

    A `long` one takes minutes: only `long_conformance.py` plays it.
    """

    name: str
    play: Play
    eras: Sequence[Era]
    rules: str
    setup: Setup
    long: bool


SCRIPTS: Final[list[Script]] = []


def script(
    rules: str, *, eras: Sequence[Era] = ALL, setup: Setup = "usual", long: bool = False
) -> Callable[[Play], Play]:
    """Register a script under the name of its function."""

    def register(play: Play) -> Play:
        name = play.__name__
        assert all(each.name != name for each in SCRIPTS), name
        SCRIPTS.append(Script(name=name, play=play, eras=eras, rules=rules, setup=setup, long=long))
        return play

    return register
