"""The judge: incidents are done to simulated processes, and what a program tells of them is counted against that.

The truth is what was done to the processes, written down by the scenario that did it; its spans are the world's own
view of the group's state. Nothing here is derived from events, or knows how a program groups them.

    rules.py        the coordinator of one group: the rules, and the history that its log tells
    setup.py        how a process is configured
    process.py      one consumer process
    assignors.py    what a leader makes of its members
    world.py        time, requests and answers
    outages.py      what happens to the coordinator and to the network
    view.py         the rebalances, as the world sees them, and whose they are
    truth.py        an incident while it is being done, and what is left of it
    stage.py        a group drawn by lot, and what can be done to its processes
    scenario.py     scenarios by name; `scenarios/` has them
    case.py         a case from a seed
    showing.py      a case for people
    telling.py      the form in which a program tells
    count.py        what was told against what was done
    table.py        the count as a table
    tellers.py      tellers that know the truth

    python -m tests.judge --teller MODULE:FUNCTION [--seeds 1000] [--kind crash] [--jobs 2] [--page FILE]
    python -m tests.judge show SEED
"""
