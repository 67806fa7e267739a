"""A proxy of the drill's own, which cuts and delays: between a process and its log's brokers, or before a process.

How bytes pass is in `relay.py`. New connections are taken while the network is cut, and hear nothing.
"""

import asyncio
import socket

from muster.coordinator.sidecar.messages.rewriting import AnswerRewriter
from muster.drills.errors import ServiceFailed
from muster.drills.service.lasting_ports import HOST
from muster.drills.service.relay import Weather, relay
from muster.events.kafka.addresses import BrokerAddress


class Proxy:
    """See the module. Close it in the end."""

    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._ports: dict[BrokerAddress, int] = {}
        self._servers: list[asyncio.Task[asyncio.Server]] = []
        self._relays: set[asyncio.Task[None]] = set()
        self._rewriter: AnswerRewriter | None = None

    def before(self, address: BrokerAddress) -> str:
        """Relay to an address; returns the one to use instead. Raises ServiceFailed."""
        return f"{HOST}:{self._port_before(address)}"

    def before_brokers(self, bootstrap: tuple[BrokerAddress, ...]) -> str:
        """Relay to these brokers, and to each that they name; returns the addresses to use instead."""
        self._rewriter = AnswerRewriter(self._address_of, {})
        return ",".join(self.before(broker) for broker in bootstrap)

    async def close(self) -> None:
        """Close all connections and stop listening."""
        for server in await asyncio.gather(*self._servers):
            server.close()
        for task in self._relays:
            task.cancel()
        await asyncio.gather(*self._relays, return_exceptions=True)

    def _address_of(self, _node_id: int, host: str, port: int) -> tuple[str, int]:
        return HOST, self._port_before(BrokerAddress(host, port))

    def _port_before(self, address: BrokerAddress) -> int:
        """The port that relays to an address; it takes connections from now on."""
        if address not in self._ports:
            try:
                listening = socket.create_server((HOST, 0))
            except OSError as error:
                raise ServiceFailed(f"the drill's proxy cannot listen on {HOST}: {error.strerror}") from error

            async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                await self._serve(reader, writer, address)

            self._ports[address] = listening.getsockname()[1]
            self._servers.append(asyncio.create_task(asyncio.start_server(serve, sock=listening)))
        return self._ports[address]

    # ---- relaying -----------------------------------------------------------------------------------

    async def _serve(
        self, down_reader: asyncio.StreamReader, down_writer: asyncio.StreamWriter, address: BrokerAddress
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._relays.add(task)
        writers = [down_writer]
        try:
            await self._weather.passable()
            up_reader, up_writer = await asyncio.open_connection(address.host, address.port)
            writers.append(up_writer)
            await relay((down_reader, down_writer), (up_reader, up_writer), self._weather, self._rewriter)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._relays.discard(task)
            for writer in writers:
                writer.close()
