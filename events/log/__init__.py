"""Event logs: the contract, and its implementations in memory, in SQLite and in Kafka.

base.py         the contract
memory.py, sqlite/, kafka/   the implementations
only_read.py    the common part of read-only logs
url.py          opening a log by its URL
options.py      the options by which commands name a log
limits.py       the limits of the logs without a broker
succession.py   the check that no other owner appended between two claims of one owner
wall_clock.py   the clock that timestamps records
"""
