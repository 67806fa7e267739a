"""Group membership as events: the event types, the state that they produce, and how they are stored.

    causes.py             why things happen: a closed enumeration
    events.py, state.py   the events, and the hard state that they produce
    evolve.py             the only way to change hard state: one event applied to one group
    ownership.py          why a partition changed hands
    connection.py         the connection that a member last used, and how it ended
    tables.py             the collections of a group: copy-on-write mappings whose versions share unchanged entries
    projector.py          folds many records into the groups of a partition
    ids.py                types for ids
    loading.py            reads a partition's records from first to last
    snapshot.py           a partition's state so far, as bytes
    damage.py             which records of a quarantined group can be read
    keys.py, records.py   the records of a log, and their keys
    near_names.py         suggestions for a misspelled name
    partitioner.py        the partition of a group, by Kafka's own formula
    steps.py              long work as a generator that can pause between entries
    avro/, varints.py     events as Avro single objects
    consumer_protocol.py  decodes subscriptions and assignments, the only opaque fields that we look into
    log/                  event logs: memory, SQLite and Kafka behind one contract
    kafka/                connections to a Kafka cluster; knows nothing of event logs

Outside `log/` and `kafka/` everything here is pure: no clock, no randomness, no asyncio, no logging, no Kafka client.
"""
