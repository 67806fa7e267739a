"""A takeover, step by step. A step is a file, with its input and its result; `partition_takeover.py` goes through them.

partition_takeover.py  the steps in their order, and what a failed one leaves for the next attempt
claim_partition.py     1. claim the partition and write the fence record
read_groups.py         2. read the groups up to that record
claim_offsets.py       3. claim the committed offsets and handle those without a group
orphans.py             ... which are removed, or get an empty group
ownership_end.py       4. the owner before: how long it may still answer, when it was last seen, how its ownership ended
write_ready.py         5. write CoordinatorReady
resume_groups.py       6. serve the groups
"""
