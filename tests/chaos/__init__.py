"""Faults done to real processes on real brokers, one after another under load; `python -m tests.chaos`, `make chaos`.

It has a cluster of three brokers, Musters that share the partitions of one log there, members of groups and client
libraries, faults from a seed, and the invariants over the log and over the responses that clients received. Virtual
time is in tests/simulation, single faults with their effects are in tests/clients and tests/faults, and measuring is
done by `muster drill`.

    schedule.py    which faults come, from a seed (pure)
    faults.py      does one
    service.py     the brokers and the Musters, and a relay before each of their addresses
    network.py     relays, which cut and slow down the connections between any two
    older.py       a Muster that knows an older format level
    members.py     members of groups, which record the responses they get
    libraries.py   groups of librdkafka's and Java's consumers
    load.py        all of these
    file_log.py    a service of its own, on a disk that becomes full
    ledger.py      the responses that all of them received
    evidence.py    what is in the log, and which commits were stored
    verdict.py     the invariants, numbered (pure)
    run.py         one fault after another: do it, wait until all are served, judge
    report.py      the table
"""
