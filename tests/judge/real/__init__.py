"""The judge's other half: incidents are done to processes of real clients, which a real Muster coordinates.

The truth is what was done, and what the processes and an onlooker saw of it; it is never derived from events. The count
is the judge's own (`tests/judge/count.py`), and so is its tolerance of a second; but what real clients do has no exact
moment: a process takes a while to load its client, a member hears of a rebalance at its next heartbeat, and a session
expires up to a heartbeat interval before its time after the kill. So the truth gives ranges.

    begin   from the deed (for a session that expires: the session timeout later, but for one heartbeat interval) to the
            first look of the onlooker that found the group not at rest
    end     from the last such look to the moment from which on the group surely was at rest
    rebalances   the generations that the group went through from the deed until it was at rest again for two seconds,
            by a member's heartbeats: each is one rebalance. What came of which of two deeds at once is left open
    kind    that of the page; where only the clients decide (does an outage cost a place?), by the member ids that the
            processes say they have

Muster is alone, or a sidecar in front of a broker that all cases share. What was done is the same truth in both: all
processes are at one host here anyway, so clients that share a client id cannot be told apart in either. Only partitions
are added differently: at the broker, or by a restart of Muster.

Which cases the machine has spoiled is a rule (`spoiled.py`); they are counted and named, and left out.

    service.py        the Muster, alone or in front of a broker
    given.py          what a process is given, and where the two of them write
    diary.py          what a process writes down about itself
    families.py       the consumer of each family, with one face
    java_consumer.py  the Java client, driven from Python
    process_main.py   the process
    process.py        a process, for those who start, stop and kill it
    onlooker.py       watches the group as an administrator could
    asking.py         what an administrator asks for
    story.py          an incident while it is being done
    stage.py          a group of real processes, and single deeds
    scenario.py       what a scenario is
    scenarios/        the scenarios
    spoiled.py        which cases the machine has spoiled
    case.py           a case from a seed
    table.py          the count by kind and family

    python -m tests.judge.real [--mode sidecar] [--seed 0] [--cases 60] [--jobs 6] [--family java] [--scenario crash]
"""
