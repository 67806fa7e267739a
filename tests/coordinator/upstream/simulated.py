"""The upstream cluster on a simulated network, in virtual time.

Brokers may hang, or be down; their responses are those of `fake_broker.py`.
"""

import asyncio
from typing import Final

from tests.coordinator.upstream.fake_broker import KAFKA_3_2, FakeBroker
from tests.faults.network import Connection, NetworkLoop

HOST: Final = "broker"


class SimulatedBroker(FakeBroker):
    """Listens from the start, on its own port; `is_hung`: it accepts connections and requests, but does not respond."""

    def __init__(self, port: int) -> None:
        super().__init__(KAFKA_3_2, None)
        self.is_hung = False
        self.open: list[Connection] = []
        self._port = port
        self.come_back()

    @property
    def address(self) -> str:
        return f"{HOST}:{self._port}"

    def leave(self) -> None:
        """Reset the connections, and stop listening."""
        del self._network().listeners[HOST, self._port]
        for connection in self.open:
            connection.cut()

    def come_back(self) -> None:
        """Listen again."""
        self._network().listeners[HOST, self._port] = self

    def accepted(self, connection: Connection) -> None:
        self.connections += 1
        self.open.append(connection)

    def received(self, connection: Connection, frame: bytes) -> None:
        answer = None if self.is_hung else self._answer(frame)
        if answer is not None:
            connection.answer(answer)

    @staticmethod
    def _network() -> NetworkLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NetworkLoop)
        return loop
