"""Addresses of brokers that a cluster has named, for when those that it named last are all away.

What belongs here: the addresses, of each cluster and security protocol. What it must not know: connections.

Metadata names the brokers that live at the moment. Where the one that a link knows ends just when the others have come
back, the link would wait for that one alone. So all links of a process note here what they were told, and a link to a
cluster asks at the others' addresses last.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from muster.events.kafka.addresses import BrokerAddress

ADDRESSES_MAX: Final = 16
"""The addresses kept of a cluster, the latest: brokers may come back under new ones for ever, and each may hang."""

_Listeners = tuple[str, str]
"""The id of a cluster, and the security protocol: a listener of another one would not understand."""


class KnownBrokers:
    """See the module."""

    def __init__(self) -> None:
        self._known: defaultdict[_Listeners, dict[BrokerAddress, None]] = defaultdict(dict)

    def note(self, cluster_id: str, protocol: str, named: Iterable[BrokerAddress]) -> None:
        """Note the addresses of a Metadata answer."""
        known = self._known[cluster_id, protocol]
        for address in named:
            known.pop(address, None)
            known[address] = None
        for oldest in list(known)[:-ADDRESSES_MAX]:
            del known[oldest]

    def of(self, cluster_id: str | None, protocol: str) -> Sequence[BrokerAddress]:
        """Return the addresses of a cluster, the latest first; none while its id is not known."""
        return () if cluster_id is None else list(reversed(self._known.get((cluster_id, protocol), {})))
