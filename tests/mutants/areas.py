"""The code to be mutated, by folder, and the share of its mutants that tests must notice."""

from typing import Final

import msgspec


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """Folders of code with the tests that are theirs, folders or files; `mutants` of them are in a whole sample.

    `but`: folders within, which are an area of their own.
    """

    name: str
    code: tuple[str, ...]
    tests: tuple[str, ...]
    goal: float
    mutants: int
    but: tuple[str, ...] = ()


AREAS: Final = (
    Area(name="group", code=("coordinator/group",), tests=("tests/coordinator/group",), goal=0.95, mutants=80),
    Area(name="events", code=("events",), tests=("tests/events", "tests/faults"), goal=0.95, mutants=60),
    Area(
        name="runtime",
        code=("coordinator/runtime", "coordinator/load", "coordinator/offsets"),
        tests=("tests/coordinator/runtime", "tests/coordinator/load", "tests/coordinator/offsets"),
        goal=0.85,
        mutants=70,
    ),
    Area(name="upstream", code=("coordinator/upstream",), tests=("tests/coordinator/upstream",), goal=0.85, mutants=50),
    Area(name="sidecar", code=("coordinator/sidecar",), tests=("tests/coordinator/sidecar",), goal=0.85, mutants=40),
    Area(
        name="net",
        code=("coordinator/net",),
        tests=("tests/coordinator/net", "tests/coordinator/standalone/test_server.py"),
        goal=0.85,
        mutants=30,
    ),
    Area(name="wire", code=("coordinator/wire",), tests=("tests/coordinator/wire",), goal=0.85, mutants=20),
    Area(name="admin", code=("coordinator/client",), tests=("tests/coordinator/client",), goal=0.85, mutants=10),
    Area(
        name="standalone",
        code=("coordinator/standalone",),
        tests=("tests/coordinator/standalone",),
        goal=0.85,
        mutants=10,
    ),
    Area(
        name="settings",
        code=("coordinator/settings",),
        tests=(
            "tests/coordinator/settings",
            "tests/coordinator/sidecar/test_settings.py",
            "tests/coordinator/sidecar/test_ports.py",
            "tests/coordinator/runtime/test_file_log.py",
            "tests/test_serve.py",
        ),
        goal=0.85,
        mutants=10,
    ),
    Area(
        name="commands",
        code=("coordinator/client/commands",),
        tests=("tests/coordinator/client/commands",),
        goal=0.85,
        mutants=10,
    ),
    Area(
        name="replay",
        code=("replay",),
        but=("replay/archive", "replay/fleet"),
        tests=(
            "tests/replay/commands",
            "tests/replay/history",
            "tests/replay/incidents",
            "tests/replay/logs",
            "tests/replay/rebalances",
            "tests/replay/report",
            "tests/replay/results",
            "tests/replay/whatif",
            "tests/replay/test_memberships.py",
            "tests/replay/test_rerun.py",
            "tests/replay/text",
            "tests/replay/test_verify.py",
            "tests/replay/test_verify_renewal.py",
        ),
        goal=0.85,
        mutants=60,
    ),
    Area(name="archive", code=("replay/archive",), tests=("tests/replay/archive",), goal=0.85, mutants=10),
    Area(name="fleet", code=("replay/fleet",), tests=("tests/replay/fleet",), goal=0.85, mutants=30),
)
