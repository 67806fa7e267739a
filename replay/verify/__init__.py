"""`muster replay verify`: is the whole log consistent? Pure: records are fed to it one by one, in log order.

finding.py       The findings and the result.
group_check.py   Checks one group: numbering without gaps, legal transitions, invariants, and a rerun of the rules.
group_checks.py  Keeps the checks of a partition's groups; only a few of them are unpacked in memory.
invariants.py    The invariants of a group, and of a change of its own record.
partition_check.py   Checks one partition: one owner at a time, epochs that never decrease, and its groups.
verification.py  Checks all partitions.
"""
