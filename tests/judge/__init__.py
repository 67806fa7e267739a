"""The judge: incidents are done to simulated processes, and what a program tells of them is counted against that.

The groups are played by `replay/fleet/simulation`; the truth is what was done to the processes, never derived from
events.

    case.py         a case from a seed
    scenario.py     scenarios by name: the fleet's and the judge's own
    scenarios/      the judge's own, which no fleet plays
    showing.py      a case for people
    telling.py      the form in which a program tells
    count.py        what was told against what was done
    table.py        the count as a table
    tellers.py      tellers that know the truth
    real/           the same with processes of real clients, and their own long form

    python -m tests.judge --teller MODULE:FUNCTION [--seeds 1000] [--kind crash] [--jobs 2] [--page FILE]
    python -m tests.judge show SEED
"""
