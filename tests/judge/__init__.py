"""The judge: causes incidents in simulated groups, and scores a program's report of them against the ground truth.

The groups are played by `replay/fleet/simulation`; the ground truth is what was done to the processes, never derived
from events.

    case.py         a case from a seed
    scenario.py     scenarios by name: the fleet's and the judge's own
    scenarios/      the judge's own, which no fleet plays
    showing.py      a case as text
    telling.py      the form of a program's reports
    count.py        scores reports against what was done
    table.py        the count as a table
    tellers.py      tellers that know the ground truth
    real/           the same with processes of real clients, and their own long form

    python -m tests.judge --teller MODULE:FUNCTION [--seeds 1000] [--kind crash] [--jobs 2] [--page FILE]
    python -m tests.judge show SEED
"""
