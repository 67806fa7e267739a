"""Bugs of other coordinators: one test for each collected case, named after its number.

    S1 to S20    static membership
    R1 to R17    the state machine of rebalances, and what clients make of it
    L1 to L9     event histories, and takeovers

Each docstring describes the bug, and the required behaviour. A test is at the level of its bug: the rules (the
harness of `coordinator/group`), the runtime in virtual time (`simulation`), a server on a socket with the runtime
behind it (`coordinator/serving.py`), the readers of the event log. `test_every_number.py` checks that none is missing.
"""
