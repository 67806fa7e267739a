"""Which partitions this process owns: taken over, proven, lost, released.

A takeover goes from the message of the ownership group to serving: `coordinator/peers/ownership_group.py` gets the
message, `coordinator/peers/sharer.py` assigns the partitions, `coordinator/runtime/runtime.py` passes them on,
`owned_partitions.py` has their states, `takeover/` the steps, `owned_partition.py` the partition that is served.

owned_partitions.py  the state of each partition, and what leads from one to another
partition_state.py   the states and their transitions
takeover/            the takeover of one partition, step by step
owned_partition.py   a partition that is served: the renewal of its claim, its end
fencing.py           the fence record
lease_keeper.py      proofs, while nothing is appended, that partitions are still this process's
hot_standbys.py      what is followed of both topics, so that a takeover is short
followed_topic.py    ... and how one topic is followed
snapshots.py         partitions saved in a folder, so that a start is short
signs_of_life.py     the note of an owner that it lives
log_outage.py        an outage of the log: retries, and what is said meanwhile
slow_appends.py      appends that are not acknowledged for long
owned_status.py      the partitions for the status
partition_lines.py   log lines about many partitions at once
"""
