"""Accepting clients that speak TLS: each counts as a connection from the accept on, and its handshake has a time limit.

An asyncio server makes a connection known only after its TLS handshake, so no limit would apply to clients that never
finish theirs. Here a client is counted first, and then the handshake begins (tls_handshake.py).

What belongs here: accepting. What it must not know: limits, requests.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable

from muster.coordinator.load.turns import Turns
from muster.coordinator.net.hosts import java_host
from muster.coordinator.net.listener import Listener
from muster.coordinator.net.tls_handshake import Handshake, log_failed


class TlsListener(Listener):
    """Accepts clients that speak TLS; see the module.

    `turns` are the handshakes', of all listeners. `admit` counts a handshake and returns whether the client may stay.
    `ended` is called when the place of one that was admitted is free, perhaps twice. `failed`: see Handshake.
    """

    def __init__(
        self,
        bound: socket.socket,
        new_connection: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        turns: Turns,
        *,
        admit: Callable[[Handshake], bool],
        ended: Callable[[Handshake], None],
        failed: Callable[[str, str], None] = log_failed,
    ) -> None:
        super().__init__(bound)
        self._new_connection = new_connection
        self._context = context
        self._turns = turns
        self._ended = ended
        self._admit = admit
        self._failed = failed

    def _accepted(self, client: socket.socket, host: str) -> None:
        handshake = Handshake(
            java_host(host),
            self._context,
            self._turns,
            made=self._made,
            ended=self._ended,
            failed=self._failed,
        )
        if self._admit(handshake):
            handshake.begin(client)
        else:
            client.close()

    def _made(self, handshake: Handshake) -> asyncio.Protocol:
        """The handshake has ended: its connection is counted in its place."""
        self._ended(handshake)
        return self._new_connection()
