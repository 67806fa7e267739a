"""What connections of both modes have in common: frames, heartbeats, turns, memory, limits.

buffer.py          Bytes as they come from a socket, to be cut into frames or passed on as they are.
client_socket.py    One client's socket around a `Connection`, in both modes: turns, back-pressure, memory, and what
                   ends it.
flow.py            What is read from a socket, and what is sent to it.
frames.py          One client connection without its socket: bytes in, one request at a time out, answers in, bytes
                   out.
heartbeats.py      The fast path: a heartbeat whose bytes are those of the member's last accepted one is answered
                   without decoding.
hosts.py           Hosts of clients, as Kafka writes them.
limits.py          The limits of connections, by the names of their settings.
listening.py       Accepting connections within a limit, closing idle ones, and stopping in good order; at one
                   address or at many.
memory.py          How many bytes requests and answers hold, over the process, and who has to go when that is too
                   much.
connection_memory.py  One connection's share of the memory: what it holds, and how it is made to let go.
"""
