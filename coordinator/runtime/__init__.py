"""The runtime around the rules, like Kafka's CoordinatorRuntime: owned partitions, their groups, appends, timers.

runtime.py     The groups of all partitions of the process, and the background tasks.
unassigned_watch.py   Finds partitions that no process owns, logs them, and triggers a rebalance.
ownership/     The partitions that this process owns: takeover, proof of ownership, loss, release.
partition/     One owned partition: its groups, requests to them, their deadlines, its appends.
"""
