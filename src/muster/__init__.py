"""Muster: a Kafka consumer-group coordinator that never forgets why a group rebalanced.

The packages are links to the folders at the top of the repository; `cli.py` is the command.
"""

from typing import Final

DISTRIBUTION: Final = "muster-coordinator"
"""The name of the distribution; `muster` on the public index is another project's."""
