"""One owned partition: its groups, requests to them, their deadlines, what it appends.

partition.py           The partition: what it does with requests, deadlines, the sweep.
command_processor.py   Decides the commands of a group, a slice at a time; Kafka's CoordinatorEventProcessor.
group_context.py       What a partition keeps for each group: its queue, its batch, heartbeat tickets.
deadlines.py           The deadlines of a partition: one heap, one timer.
sweep.py               The sweep of a partition for expired offsets and groups (EX1, TM4).
quarantine.py          Groups with a record that cannot be read: how they are answered, and their repair.
outbox.py              Appends events, then offsets, and lets replies leave when both are durable.
waiting.py             Requests that are not answered yet, and where their answers go.
waiting_limit.py       The limit of waiting joins and syncs for each principal, or group.
answer_lease.py        Until when a partition's answers may leave, and those that wait for the next proof.
old_leases.py          Until when former owners may still answer from memory.
pauses.py              Pauses of the process or its machine: what they mean for sessions, and their event.
announce.py            Metrics and log lines for events that became durable.
kept_assignments.py    Metrics and log lines for static members that come back with another subscription.
refused_joins.py       Metrics and log lines for joins that are refused for good.
rebalance_log.py       One line, and the durations, of each rebalance.
owner.py               What all partitions of this process share: its name, its logs, its settings.
former_owners.py       Warns, once for all partitions, of a former owner that did not stop in good order.
retention_clock.py     The clock by which offsets and history expire: a jump ahead is believed late.
"""
