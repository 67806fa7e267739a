"""Remembers broker addresses of a cluster, for when all those that it named last are down.

What belongs here: the addresses, of each cluster and security protocol. What it must not know: connections.

Metadata names the brokers that live at the moment. Where the one that a link knows ends just when the others have come
back, the link would wait for that one alone. So all links of a process note here what they were told, and a link to a
cluster asks at the others' addresses last. A link that has found no cluster yet takes the one that has a broker at an
address that it was given.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from muster.events.kafka.addresses import BrokerAddress

ADDRESSES_MAX: Final = 16
"""The addresses kept of a cluster, the latest: brokers may come back under new ones for ever, and each may hang."""

_Listeners = tuple[str, str]
"""The id of a cluster, and the security protocol: a listener of another one would not understand."""


class KnownBrokers:
    """Addresses by cluster id and security protocol, shared by all links of the process."""

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

    def of(
        self, cluster_id: str | None, protocol: str, bootstrap: Collection[BrokerAddress] = ()
    ) -> Sequence[BrokerAddress]:
        """Return the addresses of a cluster, the latest first. `bootstrap` tells which, while its id is not known."""
        if cluster_id is not None:
            return list(reversed(self._known.get((cluster_id, protocol), {})))
        found = [
            known
            for (_, each), known in self._known.items()
            if each == protocol and not known.keys().isdisjoint(bootstrap)
        ]
        return list(reversed(found[0])) if len(found) == 1 else ()
