"""The judge with real clients: causes incidents in groups of real consumers that a real Muster coordinates.

The ground truth is what was done, and what the processes and an onlooker saw of it; it is never derived from events.
The score is the judge's own (`tests/judge/count.py`), and so is its tolerance of a second; but real clients do nothing
at an exact time: a process takes a while to load its client, a member hears of a rebalance at its next heartbeat, and a
session expires up to a heartbeat interval before its time after the kill. So the ground truth has ranges.

    begin   from the action (for a session that expires: the session timeout later, minus one heartbeat interval) to the
            onlooker's first look that found the group not at rest
    end     from the last such look to the time from which the group was certainly at rest
    rebalances   the generations of the group from the action until it was at rest again for two seconds, by a member's
            heartbeats: each is one rebalance. Which of two simultaneous actions caused it is left open
    kind    that of the page; where only the clients decide (does an outage cost a place?), by the member ids that the
            processes report

Muster is alone, or a sidecar in front of a broker that all cases share. The ground truth is the same in both: all
processes run on one host, so clients that share a client id cannot be distinguished in either. Only partitions are
added differently: at the broker, or by a restart of Muster.

A rule decides which cases the machine has spoiled (`spoiled.py`); they are counted, named and left out.

    service.py        the Muster, alone or in front of a broker
    given.py          the configuration and files of a process
    diary.py          what a process writes down about itself
    families.py       the consumer of each family, with one interface
    java_consumer.py  the Java client, driven from Python
    process_main.py   the process
    process.py        a process, to start, stop and kill
    onlooker.py       watches the group as an administrator could
    asking.py         an administrator's requests
    story.py          an incident while it is caused
    stage.py          a group of real processes, and single actions
    scenario.py       what a scenario is
    scenarios/        the scenarios
    spoiled.py        which cases the machine has spoiled
    case.py           a case from a seed
    table.py          the count by kind and family

    python -m tests.judge.real [--mode sidecar] [--seed 0] [--cases 60] [--jobs 6] [--family java] [--scenario crash]
"""
