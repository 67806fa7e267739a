"""Several processes of one event log: each owns some of its partitions, and knows who owns the others.

They share the partitions through an ordinary consumer group in the log's cluster, the ownership group: Kafka elects and
notices who is gone, as it does for everybody. What it says is who *should* own a partition; that only one does is held
by the log (runtime/ownership).

sharing.py            who owns which partitions: the leader's decision, and what members tell each other (pure)
ownership_group.py    this process as a member of that group
former_seats.py       why former owners own their partitions no more, by what the group has told (pure)
peer_metrics.py       the metrics of the other processes
peer_status.py        the other processes, and what they own, for the status of this one
peer_watch.py         notices at once that another process is gone, by a connection to it
link/                 connections between the processes, on which a sidecar forwards requests to a group's owner
sharer.py             serves the partitions that this process is to own, and tells clients where the others are
"""
