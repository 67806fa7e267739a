"""All scripts: `SCRIPTS`, filled by the modules that are imported here."""

from tests.conformance.script import SCRIPTS
from tests.conformance.scripts import (  # noqa: F401 -- each registers its scripts
    admin,
    expiry,
    identity,
    initial_delay,
    join_phase,
    joining,
    leaving,
    matrix,
    max_size,
    offsets,
    pending,
    rebalancing,
    sessions,
    static,
    static_sessions,
)

__all__ = ["SCRIPTS"]
