"""Where events are kept.

base.py         the contract
memory.py, sqlite/, kafka/   who fulfil it
url.py          one is opened by its URL
options.py      the options by which commands name a log
limits.py       what the logs without a broker hold themselves to
succession.py   whether an owner's next writer has begun right behind its last one
wall_clock.py   the clock that records are stamped with
"""
