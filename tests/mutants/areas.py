"""The code whose tests are tried, by folder, and the share of its mutants that is to be noticed."""

from typing import Final

import msgspec


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of code with the tests that are theirs; `weight` is its part of a sample."""

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    goal: float
    weight: int


AREAS: Final = (
    Area(name="group", code=("coordinator/group",), tests=("tests/coordinator/group",), goal=0.95, weight=8),
    Area(name="events", code=("events",), tests=("tests/events",), goal=0.95, weight=6),
    Area(
        name="runtime",
        code=("coordinator/runtime", "coordinator/load", "coordinator/offsets"),
        tests=("tests/coordinator/runtime", "tests/coordinator/load", "tests/coordinator/offsets"),
        goal=0.85,
        weight=7,
    ),
    Area(name="upstream", code=("coordinator/upstream",), tests=("tests/coordinator/upstream",), goal=0.85, weight=5),
    Area(name="sidecar", code=("coordinator/sidecar",), tests=("tests/coordinator/sidecar",), goal=0.85, weight=4),
)
