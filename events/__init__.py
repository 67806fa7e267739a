"""The vocabulary of group membership: what can happen, what that makes of a group, how it is written down.

    causes.py             why things happen: a closed enumeration
    events.py, state.py   the facts, and the hard state they build
    evolve.py             the only way to change hard state: one event applied to one group
    ownership.py          why a partition changed hands
    connection.py         the connection that a member last spoke on, and how it ended
    tables.py             the collections of a group: many versions that share what has not changed
    projector.py          many records folded into the groups of a partition
    ids.py                the names of things, as types
    loading.py            a partition's records read from the first to the last
    snapshot.py           what a reading has made of a partition so far, as bytes
    damage.py             what of a group can be read, and what cannot
    keys.py, records.py   what a log stores, and under which key
    near_names.py         names like one that is unknown
    partitioner.py        which partition a group lives in: Kafka's own formula
    steps.py              long work as a generator that can pause between entries
    avro/, varints.py     events as Avro single objects
    consumer_protocol.py  the one opaque field we look into, for people: subscriptions and assignments
    log/                  where events are kept: memory, SQLite, Kafka; one contract for the three
    kafka/                the way to a Kafka cluster, which knows nothing of logs

Outside `log/` and `kafka/` everything here is pure: no clock, no randomness, no asyncio, no logging, no Kafka client.
"""
