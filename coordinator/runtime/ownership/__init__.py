"""Which partitions this process owns: taken over, proven, lost, given up.

owned_partitions.py    Partitions that are assigned: taken over, lost, given up, each by itself.
takeover.py            Takes a partition over: claim it, write the fence record, read up to it, serve.
ownership_end.py       Tells why the former owner owned a partition no more, as far as that is known.
ready_log.py           One line for all partitions taken over side by side, and how long each phase took.
standbys.py            Follows the partitions of other processes, so that a takeover reads what is new, and no history.
hot_standbys.py        The standbys of both topics, of events and of committed offsets.
snapshots.py           Snapshots of all partitions in a folder, so that a start reads what is new, and no history.
orphans.py             Committed offsets without a group, which a takeover finds.
owned_partition.py     A partition that this process owns: its writer, the renewal of its claim, its end.
owned_status.py        What this process owns, for its status.
fencing.py             The fence record, with which a claim counts.
lease_keeper.py        Proves each half lease, while nothing is appended, that partitions are still ours.
successor.py           Finds the process that has taken a partition over from this one.
signs_of_life.py       Leaves a note every five seconds that this process lives, and finds the last one of another.
log_outage.py          An outage of the event log: its reason, its duration, the partitions that wait for it.
slow_appends.py        Reports appends that have not been answered for long.
"""
