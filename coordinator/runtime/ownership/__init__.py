"""The partitions that this process owns: takeover, proof of ownership, loss, release.

How an assignment in the ownership group leads to a served partition: `coordinator/peers/ownership_group.py` receives
the assignment, `coordinator/peers/sharer.py` computes the difference, `coordinator/runtime/runtime.py` passes it on,
`owned_partitions.py` keeps the state of each partition, `takeover/` has the steps, and `owned_partition.py` is a
partition that is served.

owned_partitions.py  the state of each partition, and the causes of transitions
partition_state.py   the states and their transitions
takeover/            the takeover of one partition, step by step
owned_partition.py   a served partition: renewal of its claim, its end
fencing.py           the fence record
lease_keeper.py      proves ownership while nothing is appended
hot_standbys.py      follows the event topic and the offsets topic, which makes takeovers short
followed_topic.py    ... and how one topic is followed
snapshots.py         saves partitions in a folder, which makes starts short
signs_of_life.py     periodic records that show when an owner was last alive
log_outage.py        an outage of the log: retries, log lines and /readyz meanwhile
slow_appends.py      appends that have not been acknowledged for a long time
owned_status.py      the partitions in the process's status
partition_lines.py   log lines about many partitions at once
"""
