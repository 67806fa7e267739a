"""A takeover. Each step is a file with its input and its result; `partition_takeover.py` runs them in order.

partition_takeover.py  the order of the steps, and what a failed step leaves for the next attempt
claim_partition.py     1. claim the partition and write the fence record
read_groups.py         2. read the groups up to that record
claim_offsets.py       3. claim the committed offsets and handle those without a group
orphans.py             ... which are removed, or get an empty group
ownership_end.py       4. the former owner: until when it may respond, when it was last alive, why its ownership ended
write_ready.py         5. write CoordinatorReady
resume_groups.py       6. serve the groups
"""
