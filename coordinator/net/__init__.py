"""The network side of both modes: client connections, frames, heartbeats, back-pressure, memory, limits.

buffer.py          The receive buffer: bytes from a socket, to be cut into frames or passed on.
client_socket.py   A client's socket around a `Connection`, in both modes: turns, back-pressure, memory, closing.
flow.py            Pausing and resuming a socket's reading; sending chunks.
free_files.py      Whether this process may open a file, and so accept a connection.
frames.py          A client's connection without its socket: bytes in, one request at a time out, answers in, bytes
                   out.
heartbeats.py      The fast path: a heartbeat whose bytes are those of the member's last accepted one is answered
                   without decoding.
hosts.py           Clients' hosts, as Kafka writes them.
kept_sockets.py    Listening sockets that the supervisor keeps, so that a successor takes them with their queues.
limits.py          The limits of connections, by the names of their settings.
listener.py        Accepting clients at a listening socket, many in one turn of the event loop.
listening.py       Accepting connections within a limit, closing idle ones, and stopping in good order; at one
                   address or at many.
memory.py          The limit of the memory that requests and answers of all connections take, and which connection is
                   closed at the limit.
tls_handshake.py   TLS handshakes with clients, in turns.
tls_listener.py    Accepting clients that speak TLS: each counts from the accept on, and its handshake has a time limit.
connection_memory.py  The account of one connection in that memory.
"""
