"""The whole runtime without a clock, a disk or a network: time passes only when nothing else is left to do.

One process and a test that says what happens:

    virtual_time.py     an event loop in virtual time
    process.py          a runtime on a log in memory

Several processes, on one seed (`python -m tests.simulation`, `make simulate`):

    world.py            virtual time for many event loops, each with its own clocks; pauses, and ends
    network.py          connections and questions: latency, loss, cuts
    log_broker.py       a topic as Kafka keeps it: epochs that fence, batches that are repeated
    remote_log.py       an event log on it, by attempts
    muster_server.py    a whole standalone server in that world: wire, rules, runtime, ownership, offsets
    election.py         a consumer group of Musters, which shares the partitions among them
    client.py           a client that goes from address to address
    members.py          consumers, static and dynamic, some slow, some wrong
    ledger.py           what they were told
    schedule.py         who is there, and which fault happens when
    verdict.py          the invariants, numbered
    broken_builds.py    Muster with one safeguard taken out, which has to be noticed
    run.py              one seed, and many
"""
