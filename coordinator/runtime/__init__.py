"""The runtime around the rules, as Kafka's CoordinatorRuntime: owned partitions, their groups, appends, timers.

runtime.py     The groups of all partitions of the process, and what runs beside them.
unassigned_watch.py   Partitions that are assigned to nobody: looked for, told, rebalanced for.
ownership/     Which partitions this process owns: taken over, proven, lost, given up.
partition/     One owned partition: its groups, requests to them, their deadlines, what it appends.
"""
