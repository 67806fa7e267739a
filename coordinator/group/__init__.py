"""The rules of consumer-group membership, pure: no asyncio, no clock, no randomness, no logging, no sockets.

    commands.py, outcomes.py   what comes in (requests, timers), what goes out
    decide.py                  decide(command, group, soft, moment, settings) -> Decision; the table of commands
    turn.py                    one decision in the making: events recorded so far, replies, changes of soft state
    soft.py timed.py           parked requests, sessions, deadlines: what is never written
    census.py                  what is known of all members together, counted on with each change
    join.py static.py          JoinGroup: new and known members; static replacement (KIP-345)
    rebalance.py               starting a rebalance, finishing the join phase, choosing leader and protocol
    sync.py heartbeat.py leave.py offsets.py admin.py listing.py   the other requests
    identity.py duels.py       who a sender is; two processes with one instance id
    members.py arrivals.py     a member is made; many that come at once make one rebalance
    departures.py standbys.py roles.py   who takes the place of members that are gone; who is active, stands by, learns
    alter.py plan.py plan_deadlines.py   what administrators ask of a membership, and when it comes true
    release.py repair.py rewriting.py    a group goes back upstream; is made anew; has its last records written again
    timers.py expiry.py        what happens when a deadline passes; what expires
    excuses.py                 time for which nobody is blamed
    takeover.py                soft state made anew after a log was read; giving a group up
    settings.py configs.py     the settings of the rules, and those that one group can have

Two kinds of state go in. *Hard state* (`events.state.Group`) changes only by the events of a decision. *Soft state*
(`soft.Soft`) is replaced by the decision's own copy. The shell throws both away when the events cannot be stored, so
a decision that was not made durable has no effect at all.

| state               | JoinGroup, known id                        | SyncGroup              | Heartbeat | LeaveGroup   |
|---------------------|--------------------------------------------|------------------------|-----------|--------------|
| Empty               | 25                                         | 25                     | 25        | 25           |
| PreparingRebalance  | parked                                     | 27                     | 27        | 0, may end   |
| CompletingRebalance | same: answered; changed: rebalance         | parked; leader's: all  | 0         | 0, rebalance |
| Stable              | leader, changed: rebalance; else: answered | the stored assignment  | 0         | 0, rebalance |
"""
