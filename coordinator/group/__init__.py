"""The rules of consumer-group membership, pure: no asyncio, no clock, no randomness, no logging, no sockets.

    commands.py, outcomes.py   requests and passed deadlines as commands; responses as outcomes
    decide.py                  decide(command, group, soft, moment, settings) -> Decision; the table of commands
    transitions.py             the state machine: which state may follow which
    error_replies.py           the response to a request that was not decided
    turn.py                    one decision in the making: events recorded so far, replies, changes of soft state
    soft_state.py deadline_table.py   parked requests, sessions, deadlines: state that is never written
    connections.py             the members' connections, and how they ended
    census.py                  counts over all members, updated with each change
    join.py static.py          JoinGroup: new and known members; static replacement (KIP-345)
    rebalance.py               starting a rebalance, finishing the join phase, choosing leader and protocol
    sync.py heartbeat.py leave.py offsets.py describe.py delete.py listing.py   the other requests
    identity.py duels.py       validating member and instance id; two processes with one instance id
    members.py held_joins.py   adding a member; holding joins, so that many new members cause one rebalance
    returned.py                members that were removed after going silent, and are heard from again
    handed_out.py              member ids that were handed out but not used, noted for the phase that waited for them
    departures.py standby_members.py roles.py replacing lost members; active members, standbys, learners
    configs.py settings.py     the configs of one group; the settings of the rules
    alter_configs.py membership_change.py membership_timeouts.py   IncrementalAlterConfigs of a group, and its timeouts
    move_text.py               the progress of a release or an adoption, as text
    release.py repair.py rewriting.py    releasing a group upstream; recreating a damaged one; rewriting records
    timeouts.py retention.py   timeouts that have elapsed; expired offsets and groups
    unassigned.py              partitions that are assigned to no member, and the rebalance for them
    extensions.py              extending deadlines by the time that Muster itself was slow
    loaded_groups.py           soft state after a log was read; failing parked requests when a partition is given up

There are two kinds of state. *Hard state* (`events.state.Group`) changes only by the events of a decision. *Soft state*
(`soft_state.SoftState`) is replaced by the decision's own copy. The runtime discards both if the events cannot be
stored, so a decision that was not made durable has no effect at all.

Responses by the state of the group: `waits` means parked until the phase ends, a number is Kafka's error code (0:
none), and `> P` means that the group enters PreparingRebalance (E: Empty, C: CompletingRebalance, S: Stable, D: Dead).
A Dead group is not kept, and requests are answered as if it did not exist. `transitions.py` has the states, the
catalogue of rules (`make rules`) the details.

| request                       | Empty     | PreparingRebalance | CompletingRebalance | Stable    | Dead      |
|-------------------------------|-----------|--------------------|---------------------|-----------|-----------|
| JoinGroup, new member         | waits > P | waits              | waits > P           | waits > P | waits > P |
| JoinGroup, new, v4+           | 79        | 79                 | 79                  | 79        | 79 > E    |
| JoinGroup, rejoin             | 25        | waits              | 0                   | 0         | 25        |
| JoinGroup, rejoin of leader   | 25        | waits              | 0                   | waits > P | 25        |
| JoinGroup, metadata changed   | 25        | waits              | waits > P           | waits > P | 25        |
| SyncGroup, follower           | 25        | 27                 | waits               | 0         | 25        |
| SyncGroup, leader             | 25        | 27                 | 0 > S               | 0         | 25        |
| Heartbeat                     | 25        | 27                 | 0                   | 0         | 25        |
| LeaveGroup                    | 25        | 0                  | 0 > P               | 0 > P     | 25        |
| OffsetCommit                  | 25        | 0                  | 27                  | 0         | 69        |
| OffsetCommit, generation -1   | 0         | 25                 | 25                  | 25        | 0 > E     |
| DeleteGroups                  | 0 > D     | 68                 | 68                  | 68        | 69        |

Not in the table: a dynamic member's first v4+ join is answered with an id (79, KIP-394), and is sent again with it. The
first join of a group waits out `group.initial.rebalance.delay.ms` (KIP-134). If a join or leave completes the set of
awaited members, the join phase ends immediately. A static member that restarts under its instance id is answered
without a rebalance if the chosen protocol stays the same (KIP-345). With the group's configs, joins of new members can
be held and a standby can replace a lost member; that standby's heartbeat is answered with 27. OffsetCommit below v9 has
22 where v9 has 69.
"""
