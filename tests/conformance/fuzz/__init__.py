"""The differential fuzzer: random schedules on a real Kafka and on Muster, every answer compared.

    schedule.py      a schedule as data: five members, and steps; its form in a file
    generator.py     a seed gives a schedule
    odds.py          how likely its parts are
    actor.py         a member: what it was told, and the requests that it makes of that
    steps.py         how a step is taken, and where a step is left out since the servers are known to differ
    player.py        a schedule on one server: asking and waiting
    example.py       what a run through a sidecar waits for: what Kafka has come to
    account.py       what is written down of it
    leadership.py    when Kafka's choice of a leader is free
    fuse.py          which timers may be running, and whether the machine was fast enough
    turns.py         few runs ask at a time
    runs.py          a schedule on both servers, compared; shrunk, if they differ
    shrink.py        delta debugging
    tally.py         how often which answer was given
    servers.py       the pair of servers, and their settings
    found/           what was found once, in its shortest form; played by `test_fuzz.py` for ever after

`python -m tests.conformance.fuzz --seeds 500` plays seeds 0 to 499, and exits with 1 when there is a difference.

Answers must not depend on who was faster. So one request follows another: each is answered, or certain to be parked,
before the next is sent, on Kafka too, which has one thread for each kind of work here. Timeouts never end in a
schedule, or they are short and end where the schedule waits for it; a run in which the machine was too slow for that is
repeated. Where Kafka is free, the choice is hidden and the group then dissolved: after a leader was lost, two or more
could lead; votes are never tied, since all like protocols in the same order (`Play.liked`).

What differs by design is left out where it would show, by its number in the design notes: QK1 and QK4 in `steps.py`,
QK2 in `player.py`. All members have the same client id (QK12), metadata is never garbage (R16), the initial delay never
zero (R17), and lists of members are sorted (J16).
"""
