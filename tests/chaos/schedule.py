"""Which faults come, in which order and for how long: pure, from a seed.

All kinds come once before one comes again, each time in another order.
"""

import random
from collections.abc import Iterator
from enum import StrEnum, unique
from itertools import count, islice
from typing import Final

import msgspec

from tests.chaos.service import Mode


@unique
class Kind(StrEnum):
    """The kinds of faults, regardless of the party affected."""

    KILL = "kill -9"
    PAUSE = "SIGSTOP"
    CUT = "cut"
    SLOW = "slow"
    FULL = "full disk"
    ROLL = "rolling replacement"
    ALONE = "by a single process, and back"
    UPGRADE = "log upgraded while all are stopped"


@unique
class Party(StrEnum):
    """The parties of a fault; the actual ones are chosen when it begins."""

    OWNER = "the owner of most groups"
    STANDBY = "a standby"
    EDGE = "the edge"
    BROKER = "a broker"
    COORDINATOR = "the broker that coordinates the ownership group"
    BROKERS = "all brokers"
    CLIENTS = "clients"
    SNAPSHOTS = "the folder of snapshots"
    FILE = "the log of a process of its own"
    ALL = "all processes"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault. `other`: the other end of a cut. `for_s`: its duration. `ms`: the delay of responses."""

    number: int
    kind: Kind
    whom: Party
    other: Party | None = None
    for_s: float
    ms: int = 0

    def __str__(self) -> str:
        whom = f"{self.whom} from {self.other}" if self.other else str(self.whom)
        late = f" by {self.ms} ms" if self.ms else ""
        return f"{self.kind}: {whom}{late}, {self.for_s:g} s"


_Way = tuple[Kind, Party, Party | None]

_KILLED_FOR_S: Final = (0.0, 3.0, 12.0)
_BROKER_FOR_S: Final = (2.0, 8.0, 15.0)
_PAUSED_FOR_S: Final = (1.5, 4.0, 9.0, 35.0)
"""Within the lease, within the session of the processes and beyond it, and beyond every limit there is."""
_CUT_FOR_S: Final = (1.5, 5.0, 9.0, 35.0)
_SLOW_MS: Final = (50, 300, 900)
_SLOW_FOR_S: Final = 10.0

_EVERYWHERE: Final[tuple[_Way, ...]] = (
    (Kind.KILL, Party.OWNER, None),
    (Kind.KILL, Party.STANDBY, None),
    (Kind.KILL, Party.BROKER, None),
    (Kind.KILL, Party.COORDINATOR, None),
    (Kind.PAUSE, Party.OWNER, None),
    (Kind.PAUSE, Party.STANDBY, None),
    (Kind.PAUSE, Party.BROKER, None),
    (Kind.PAUSE, Party.COORDINATOR, None),
    (Kind.CUT, Party.OWNER, Party.BROKERS),
    (Kind.CUT, Party.OWNER, Party.COORDINATOR),
    (Kind.CUT, Party.OWNER, Party.BROKER),
    (Kind.CUT, Party.OWNER, Party.STANDBY),
    (Kind.CUT, Party.CLIENTS, Party.OWNER),
    (Kind.SLOW, Party.BROKERS, None),
    (Kind.SLOW, Party.BROKER, None),
    (Kind.FULL, Party.SNAPSHOTS, None),
    (Kind.FULL, Party.FILE, None),
    (Kind.ROLL, Party.ALL, None),
    (Kind.ALONE, Party.ALL, None),
    (Kind.UPGRADE, Party.ALL, None),
)
_IN_FRONT: Final[tuple[_Way, ...]] = (
    (Kind.KILL, Party.EDGE, None),
    (Kind.PAUSE, Party.EDGE, None),
    (Kind.CUT, Party.CLIENTS, Party.EDGE),
    (Kind.CUT, Party.EDGE, Party.OWNER),
    (Kind.CUT, Party.EDGE, Party.BROKERS),
)


def schedule(seed: int, faults: int, mode: Mode, kinds: frozenset[Kind] = frozenset(Kind)) -> list[Fault]:
    """Make the faults of a run, of these kinds."""
    dice = random.Random(f"{seed} {mode}")
    every = [way for way in (*_EVERYWHERE, *(_IN_FRONT if mode is Mode.SIDECAR else ())) if way[0] in kinds]
    return list(islice(_faults(dice, every), faults))


def _faults(dice: random.Random, ways: list[_Way]) -> Iterator[Fault]:
    numbers = count(1)
    while True:
        order = dice.sample(ways, len(ways))
        order.sort(key=lambda way: way[0] is Kind.UPGRADE)  # last: from then on there is no way back
        for kind, whom, other in order:
            yield Fault(
                number=next(numbers),
                kind=kind,
                whom=whom,
                other=other,
                for_s=_lasts_s(dice, kind, whom),
                ms=dice.choice(_SLOW_MS) if kind is Kind.SLOW else 0,
            )


def _lasts_s(dice: random.Random, kind: Kind, whom: Party) -> float:
    match kind:
        case Kind.KILL:
            return dice.choice(_BROKER_FOR_S if whom in (Party.BROKER, Party.COORDINATOR) else _KILLED_FOR_S)
        case Kind.PAUSE:
            return dice.choice(_PAUSED_FOR_S)
        case Kind.CUT:
            return dice.choice(_CUT_FOR_S)
        case Kind.SLOW | Kind.FULL | Kind.ALONE:
            return _SLOW_FOR_S
        case Kind.ROLL | Kind.UPGRADE:
            return 0.0
