"""Several processes of one event log: each owns some of its partitions, and knows which process owns the others.

They share the partitions through an ordinary consumer group in the log's cluster, the ownership group: Kafka elects the
leader and detects failed members, as for any group. The group decides which process *should* own a partition; the log
ensures that only one does (runtime/ownership).

sharing.py            assigns the partitions: the leader's decision, and the members' messages (pure)
ownership_group.py    this process as a member of that group
former_members.py     why the ownership of former owners ended, as far as the group knows (pure)
peer_metrics.py       metrics about the other processes
peer_status.py        the other processes and their partitions, for the status of this one
peer_watch.py         detects at once that another process is gone, by a connection to it
link/                 connections between the processes, on which a sidecar forwards requests to a group's owner
sharer.py             serves the partitions assigned to this process, and publishes to clients where the others are
"""
