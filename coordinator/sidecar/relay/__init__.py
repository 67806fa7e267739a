"""The connections of a sidecar: a client's socket and its broker's, frames, back-pressure, the client's principal.

listeners.py          the sidecar's addresses: one to bootstrap from, and one for each broker
client_side.py        a client's socket; each client connection has a broker connection of its own
broker_side.py        the broker's socket of one client, and how that broker is reached
connect_queue.py      the connects to one broker: some are under way, the others wait
conversation.py       the frames between one client and its broker, without sockets
answers.py            the broker's answers to one client, matched with the requests that are due
answer_scheduler.py   rewrites long answers in slices, and sends delayed ones when their time has come
intercept.py          by API key: relay, relay and rewrite the answer, or handle here
authorization.py      the operations that the broker allows a client on a group, cached for a while
sasl.py               the principal claimed in relayed SASL messages
refusals.py           the log lines about clients that a broker does not let in
limits.py             how many bytes of a client's requests are kept in memory
metrics.py            the relay's Prometheus counters
"""
