"""The runtime around the rules, as Kafka's CoordinatorRuntime: owned partitions, their groups, appends, timers.

announce.py            Metrics and log lines for events that became durable, and for refused joins.
answer_lease.py        Until when a partition's answers may leave, and those that wait for the next proof.
command_processor.py   Decides the commands of a group, a slice at a time; Kafka's CoordinatorEventProcessor.
deadlines.py           The deadlines of a partition: one heap, one timer.
fencing.py             The fence record, with which a claim counts.
former_owners.py       Warns of a former owner that did not stop in good order.
group_context.py       What a partition keeps for each group: its queue, its batch, heartbeat tickets.
lease_keeper.py        Proves each half lease, while nothing is appended, that partitions are still ours.
log_outage.py          An outage of the event log: its reason, its duration, the partitions that wait for it.
old_leases.py          Until when owners before this process may still answer from memory.
orphans.py             Committed offsets without a group, which a takeover finds.
outbox.py              Appends events, then offsets, and lets replies leave when both are durable.
owner.py               This process as the owner of partitions: its logs, its settings.
owned_partition.py     A partition that this process owns: its writer, the renewal of its claim, its end.
owned_partitions.py    Partitions that are assigned: taken over, lost, given up, each by itself.
ownership.py           Takes a partition over: claim it, write the fence record, read up to it, serve.
partition.py           One owned partition: its groups, requests to them, their deadlines, the sweep.
pauses.py              Pauses of the process or its machine: what they mean for sessions, and their event.
quarantine.py          Groups with a record that cannot be read: how they are answered, and their repair.
retention_clock.py     The wall clock as retention goes by it: a jump ahead is believed late.
runtime.py             The groups of all partitions of the process, and what runs beside them.
signs_of_life.py       Leaves a note every five seconds that this process lives, and finds the last one of another.
slow_appends.py        Reports appends that have not been answered for long.
successor.py           Finds out who has taken a partition over from this process.
sweep.py               The sweep of a partition for expired offsets and groups (EX1, TM4).
waiting.py             Requests that are not answered yet, and where their answers go.
waiting_limit.py       The limit of waiting joins and syncs for each principal, or group.
"""
