"""`muster replay verify`: does the whole log hold together? Pure: fed record by record, as the log has them.

finding.py       The result: what was found, where, what was expected in its place.
group_check.py   One group: its events numbered without a gap, legal moves, invariants, and the rules give them again.
group_checks.py  The groups of a partition: few are whole in memory at once.
invariants.py    The invariants of a group, and of a change of its own record.
partition_check.py   One partition: one owner at a time, epochs that only grow, and the groups in it.
verification.py  All partitions.
"""
