"""One file for each API that is answered or merged here; `handled.py` has all of them.

authentication.py     SaslHandshake and SaslAuthenticate (keys 17 and 36): relayed as they are, and looked at on
                      their way.
commits.py            OffsetCommit and TxnOffsetCommit (keys 8 and 28): judged by the group's rules, then committed
                      by the client itself.
consumer_groups.py    ConsumerGroupHeartbeat (key 68) of a client that comes with the newer protocol (KIP-848) to a
                      group that is ours.
delete_groups.py      DeleteGroups (key 42), for groups of ours and others in one request.
describe_groups.py    DescribeGroups (key 15), for groups of ours and others in one request.
group_configs.py      DescribeConfigs and IncrementalAlterConfigs (keys 32 and 44) of groups: Kafka's settings
                      upstream, ours here.
handled.py            All APIs that a sidecar handles, by key.
list_groups.py        ListGroups (key 16): what the broker lists, with the groups of ours as they are known here.
membership.py         JoinGroup, SyncGroup, Heartbeat, LeaveGroup (keys 11, 14, 12, 13) of groups that are ours;
                      others' are relayed.
merging.py            What the admin APIs share, of which a request names ours and others at once: both are asked,
                      the answers merged.
offset_delete.py      OffsetDelete (key 47).
refused.py            What clients are refused because it is Muster's own (reserved.py): records for its topics, its
                      transactional ids.
"""
