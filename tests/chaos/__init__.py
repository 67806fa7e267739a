"""Faults done to real processes on real brokers, one after another under load; `python -m tests.chaos`, `make chaos`.

What belongs here: a cluster of three brokers, Musters that share the partitions of one log there, members of groups and
client libraries, faults from a seed, and the invariants over the log and over what clients were told. What has no place
here: virtual time (tests/simulation), one fault and what must come of it (tests/clients, tests/faults), and measuring
(`muster drill`).

    schedule.py    which faults come, from a seed (pure)
    faults.py      does one
    service.py     the brokers and the Musters, and what is before each address of theirs
    network.py     relays, which cut and slow down the way between any two
    older.py       a Muster that knows an older format level
    members.py     members of groups, which note what they are told
    libraries.py   groups of librdkafka's and Java's consumers
    load.py        all of these
    file_log.py    a service of its own, on a disk that becomes full
    ledger.py      what all of them were told
    evidence.py    what is in the log, and which commits were stored
    verdict.py     the invariants, numbered (pure)
    run.py         one fault after another: do it, wait until everybody is served, judge
    report.py      the table
"""
