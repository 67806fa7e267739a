"""The runtime around the rules, like Kafka's CoordinatorRuntime: owned partitions, their groups, appends, timers.

runtime.py     The groups of all partitions of the process, and the background tasks.
unassigned_watch.py   Finds partitions of subscribed topics that no member is assigned; logs them, or rebalances.
ownership/     The partitions that this process owns: takeover, proof of ownership, loss, release.
partition/     One owned partition: its groups, requests to them, their deadlines, its appends.
"""
