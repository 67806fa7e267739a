"""The vocabulary of group membership: what can happen, what that makes of a group, how it is written down.

    causes.py             why things happen: a closed enumeration
    events.py, state.py   the facts, and the hard state they build
    tables.py             the collections of a group: many versions that share what has not changed
    evolve.py             the only way to change state: one event applied to one group
    projector.py          many records folded into the groups of a partition
    keys.py, codec.py     records as bytes: keys, Avro single-object encoding (avro/decoder.py makes the decoders)
    records.py            what a log stores
    consumer_protocol.py  the one opaque field we look into, for people: subscriptions and assignments
    log/                  where events are kept: memory, SQLite, Kafka; one contract for the three

Outside `log/` everything here is pure: no clock, no randomness, no asyncio, no logging, no Kafka client.
"""
