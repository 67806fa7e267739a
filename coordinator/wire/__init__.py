"""Kafka's messages: bytes in, commands out; outcomes in, bytes out. The only place that knows API versions.

One file per API, its version notes on top, one registration at the end: api_versions.py, delete_groups.py,
describe_cluster.py, describe_configs.py, describe_groups.py, fetch.py, find_coordinator.py, heartbeat.py,
incremental_alter_configs.py, join_group.py, leave_group.py, list_groups.py, list_offsets.py, metadata.py,
offset_commit.py, offset_delete.py, offset_fetch.py, produce.py, sync_group.py.

`events/kafka/codec/` reads and writes the bytes. This package knows the commands and outcomes of the group rules, but
nothing of sockets, logs or stored events. A handler gets a decoded request and responds with a mapping that holds the
fields of all versions; fields that a version lacks are dropped. Schemas are loaded when a version is first used, to
keep startup fast.
"""
