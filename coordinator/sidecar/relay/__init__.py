"""A client's socket and its broker's: bytes, frames, back-pressure, who the client is.

answering.py        Answers of a broker on their way to one client, as far as they take time: long to be rewritten,
                    or held for a while.
answers.py          What a broker answers one client: each answer held against the request that is due.
authorization.py    What the broker lets a client do with a group, asked on the client's own connection and kept for
                    a while.
broker_side.py      The way to the broker behind a listener, and the socket that was opened for one client.
client_side.py      A client's socket and the one of its broker: each client connection has one upstream of its own.
conversation.py     What goes back and forth between one client and its broker, without their sockets.
intercept.py        By API key: relayed, relayed with its answer rewritten, or handled here; and a request that is
                    handled here.
limits.py           How much of what a client sends is kept in memory, and how long what its broker says is good.
listeners.py        The addresses of the sidecar: one to begin with, and one for each broker, at a port that follows
                    from its node id.
metrics.py          What the relay counts, for Prometheus: plain integers, given their form when somebody asks.
sasl.py             Who a client says to be, read from the SASL messages that pass through: for the history, and for
                    the quotas.
"""
