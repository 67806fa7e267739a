"""The shell around the rules, as Kafka's CoordinatorRuntime: partitions that are owned, decisions in turn, appends,
timers.

    announce.py         What operators are told of events that have just become durable, and of refusals: counters, and
                        lines of the log.
    deadlines.py        The deadlines of a partition: one heap, one timer.
    deciding.py         The way of a group's commands through the rules, a slice at a time.
    former_owners.py    Owners that were here before and have not said goodbye: they have crashed, or were believed to
                        be gone and are not.
    log_outage.py       That the event log is away: why, since when, and which partitions wait for it.
    orphans.py          Committed offsets without a group, as a takeover finds them.
    outbox.py           The outbox: what may leave only when it is durable, and the two writers it waits for.
    ownership.py        Taking a partition over: claim it, write the fence record, read up to that record, serve.
    partition.py        One owned partition at work: its groups, who may ask for what of them, their deadlines, and the
                        sweep.
    quarantine.py       The groups of a partition that are not served, since a record of theirs cannot be read: what
                        they are answered, and the way out.
    runtime.py          All partitions of this process: taking them over, finding the one of a group, giving them up.
    slot.py             A group's place in its partition, what it has decided and not stored, and the right to a
                        heartbeat's answer.
    slow_appends.py     Appends that have not been answered for long: of which partitions, and who has not answered.
    sweep.py            The sweep of a partition: every group is looked at for what has expired, again and again (EX1,
                        TM4).
    waiting.py          The requests of a partition that have not been answered, and where their answers go.
    waiting_limit.py    How many joins and syncs of one may wait at a time, so that nobody's leave no room for others'.
"""
