"""Event logs: the contract, and its implementations in memory, in SQLite and in Kafka.

base.py         the contract
memory.py, sqlite/, kafka/   the implementations
only_read.py    the part that logs which are only read have in common
url.py          opening a log by its URL
options.py      the options by which commands name a log
limits.py       the limits of the logs without a broker
succession.py   whether an owner's next writer has begun right behind its last one
wall_clock.py   the clock that records are stamped with
"""
