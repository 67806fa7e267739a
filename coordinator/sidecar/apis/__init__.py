"""The APIs that are answered or merged here, kin in one file; `registry.py` has all of them by key.

authentication.py             SaslHandshake, SaslAuthenticate (keys 17, 36): relayed, and the principal noted
membership.py                 JoinGroup, SyncGroup, Heartbeat, LeaveGroup (keys 11, 14, 12, 13)
offset_commit.py              OffsetCommit, TxnOffsetCommit (keys 8, 28): checked by the rules, committed upstream
consumer_group_heartbeat.py   ConsumerGroupHeartbeat (key 68) of a KIP-848 client that finds a group of Muster's
describe_groups.py            DescribeGroups (key 15)
list_groups.py                ListGroups (key 16)
delete_groups.py              DeleteGroups (key 42)
offset_delete.py              OffsetDelete (key 47)
group_configs.py              DescribeConfigs, IncrementalAlterConfigs (keys 32, 44) of GROUP resources
produce_and_txn.py            Produce, InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn (keys 0, 22, 24, 25,
                              26): refused where they name a topic or a transactional id of Muster's own
merging.py                    what the admin APIs share: ask the broker and the rules, merge the answers
registry.py                   all APIs that a sidecar handles, by key
"""
