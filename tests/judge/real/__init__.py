"""The judge's other half: incidents are done to processes of real clients, which a real Muster coordinates.

The truth is what was done, and what the processes and an onlooker saw of it; it is never derived from events. The count
is the judge's own (`tests/judge/count.py`).

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
    scenarios.py      the scenarios
    spoiled.py        which cases the machine has spoiled
    case.py           a case from a seed
    table.py          the count by kind and family

    python -m tests.judge.real [--seed 0] [--cases 60] [--jobs 6] [--family java] [--scenario crash] [--keep FOLDER]
"""
