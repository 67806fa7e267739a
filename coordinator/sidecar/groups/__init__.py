"""Which groups Muster coordinates, and how a live group is moved to or from the cluster upstream.

routing.py             decides whether a group's request is handled here, relayed, or has to wait for an answer
owned_groups.py        the groups of this process, for ListGroups
recent_members.py      members of upstream's groups whose requests were relayed here within the last minute
not_taken.py           groups that clients join and that stay upstream's: what is told of them
groups_layer.py        base of the two layers in front of the runtime's groups
shadow_fence.py        answers no SyncGroup before the group's shadow has its generation bumped upstream
movable_groups.py      the group config `members.coordinator`, by which an administrator moves a group
move.py                one move: which members were told, which have come back, which are waited for
move_log.py            the log lines of a move
adoption.py            the members that are still upstream while a group is adopted, or why they are not known
moves.py               all moves under way: release to upstream, adoption from it
in_flight_commits.py   commits that were relayed and are not answered yet
"""
