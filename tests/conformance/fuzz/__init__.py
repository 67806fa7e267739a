"""The differential fuzzer: random schedules on a real Kafka and on Muster, every response compared.

    schedule.py      a schedule as data: five members, and steps; its form in a file
    generator.py     a seed gives a schedule
    odds.py          how likely its parts are
    actor.py         a member: the responses it got, and its requests
    steps.py         how a step is executed, and which are skipped because of known differences
    player.py        a schedule on one server: sending and waiting
    example.py       the state on Kafka that a run through a sidecar waits for
    account.py       the record of a run
    leadership.py    when Kafka's choice of a leader is free
    fuse.py          which timers may be running, and whether the machine was fast enough
    turns.py         limits the number of runs that send requests at a time
    runs.py          a schedule on both servers, compared; shrunk, if they differ
    shrink.py        delta debugging
    tally.py         counts of responses
    servers.py       the pair of servers, and their settings
    found/           former differences in their shortest form, replayed by `test_fuzz.py`

`python -m tests.conformance.fuzz --seeds 500` plays seeds 0 to 499, and exits with 1 if there is a difference.

Responses must not depend on timing. So requests are sequential: each is answered, or certain to be parked, before the
next is sent, on Kafka too, which has one thread for each kind of work here. Timeouts either never expire during a
schedule, or they are short and expire where the schedule waits for them; a run in which the machine was too slow for
that is repeated. Where Kafka has a choice, it is hidden and the group then dissolved: after a leader was lost, two or
more members could lead; votes are never tied, since all members prefer protocols in the same order (`Play.liked`).

Deliberate differences are avoided, by their number in the design notes: QK1 and QK4 in `steps.py`,
QK2 in `player.py`. All members have the same client id (QK12), metadata is never garbage (R16), the initial delay never
zero (R17), and lists of members are sorted (J16).
"""
