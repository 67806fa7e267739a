"""All scripts: `SCRIPTS`, filled by the modules that are imported here."""

from tests.conformance import (  # noqa: F401 -- each registers its scripts
    scripts_admin,
    scripts_expiry,
    scripts_identity,
    scripts_initial_delay,
    scripts_join_phase,
    scripts_joining,
    scripts_leaving,
    scripts_matrix,
    scripts_max_size,
    scripts_offsets,
    scripts_pending,
    scripts_rebalancing,
    scripts_sessions,
    scripts_static,
    scripts_static_sessions,
)
from tests.conformance.script import SCRIPTS

__all__ = ["SCRIPTS"]
