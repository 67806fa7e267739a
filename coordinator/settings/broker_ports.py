"""The ports of the brokers' listeners: the same after every restart, in whatever order the brokers appear.

The listener of node id n has port `base + n`, unless the mapping has another. Random ports would strand clients that
know the old ones (known bugs P11, P15); if the range is too small for a cluster's node ids, as KRaft numbers them, the
error says what to do (P10). Pure: binds nothing, and does not know the brokers.
"""

from collections.abc import Mapping

import msgspec

from muster.events.kafka.addresses import PORT_MAX


class NoPort(Exception):
    """A node id has no port; the message says why, and what to do."""


class BrokerPorts(msgspec.Struct, frozen=True):
    """The rule. `base`: the port for node id 0, even if no broker has it. `mapping`: node ids with a port of their own.

    `taken`: ports in use for something else, with the name of the setting for it. `base_name`, `mapping_name`: the
    names of the settings for the other two.
    """

    base: int
    mapping: Mapping[int, int] = {}
    taken: Mapping[int, str] = {}
    base_name: str = "--broker-base-port"
    mapping_name: str = "--listener-map"

    def port_of(self, node_id: int) -> int:
        """Return the port of a broker's listener. Raises NoPort."""
        mapped = self.mapping.get(node_id)
        port = self.base + node_id if mapped is None else mapped
        if not 0 < port <= PORT_MAX:
            last = PORT_MAX - self.base
            raise NoPort(
                f"there is no port for node id {node_id}: from {self.base_name} {self.base} on there are ports for"
                f" node ids 0 to {last}; choose a lower one, or give this one its own: --listener-map {node_id}=PORT"
            )
        if port in self.taken:
            raise NoPort(
                f"the listener of node id {node_id} would be at port {port}, which {self.taken[port]} has:"
                f" {self._ways_out(node_id)}"
            )
        owner = None if mapped is not None else next((each for each, at in self.mapping.items() if at == port), None)
        if owner is not None:
            raise NoPort(
                f"the listener of node id {node_id} would be at port {port}, which {self.mapping_name} gives to node id"
                f" {owner}: {self._ways_out(node_id)}"
            )
        return port

    def _ways_out(self, node_id: int) -> str:
        return f"choose another --broker-base-port, or --listener-map {node_id}=PORT"
