"""Eras: versions of all APIs that were current together, identified by the version of JoinGroup.

A script declares the eras that it supports (static members: from 5 on), and runs in each of them on both servers. So
all versions of each API are used, without a script that depends on any.
"""

from collections.abc import Mapping
from typing import Final

Era = int

ALL: Final = range(10)
STATIC: Final = range(5, 10)
NEWEST: Final = range(9, 10)
TWO_STEPS: Final = range(4, 10)
ONE_STEP: Final = range(4)

# For scripts in which time has to pass, which takes equally long in every version. v0 has no rebalance timeout.
SOME: Final = (1, 4, 9)
SOME_TWO_STEPS: Final = (4, 9)
SOME_STATIC: Final = (5, 9)

_VERSIONS: Final[Mapping[str, tuple[int, ...]]] = {
    "JoinGroup": (0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    "SyncGroup": (0, 0, 1, 2, 2, 3, 4, 5, 5, 5),
    "Heartbeat": (0, 0, 1, 2, 2, 3, 4, 4, 4, 4),
    "LeaveGroup": (0, 0, 1, 2, 2, 3, 4, 4, 5, 5),
    "OffsetCommit": (2, 3, 4, 5, 6, 7, 8, 8, 9, 10),
    "OffsetFetch": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    "OffsetDelete": (0,) * 10,
    "DescribeGroups": (0, 0, 1, 2, 3, 4, 5, 5, 5, 6),
    "ListGroups": (0, 0, 1, 2, 2, 3, 3, 4, 5, 5),
    "DeleteGroups": (0, 0, 1, 1, 1, 1, 2, 2, 2, 2),
    "FindCoordinator": (0, 0, 1, 2, 2, 3, 3, 4, 5, 6),
}


def version_in(era: Era, api: str) -> int:
    """The version of an API in this era."""
    return _VERSIONS[api][era]
