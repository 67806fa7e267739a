"""Kafka's messages: bytes in, commands out; outcomes in, bytes out. The only place that knows API versions.

    api.py         what one API is: key, versions, handler; the facts a handler gets; ways in which a request is broken
    messages.py    one version of one API: reading its request, writing its response
    gather.py      one request that becomes many commands
    registry.py    all APIs that are offered; ApiVersions is derived from it
    dispatch.py    a frame on its way to a handler
    in_flight.py   one request until it is answered: its steps, and their end when the client goes away
    bounds.py      the limits of one request, by API: bytes and entries
    other_protocols.py    naming TLS or HTTP where a client speaks that to this port
    authorized_operations.py    the operations that a caller may perform on a resource (KIP-430)
    resources.py   config resources, by type and name

One file per API, its version notes on top, one registration at the end: api_versions.py, delete_groups.py,
describe_cluster.py, describe_configs.py, describe_groups.py, fetch.py, find_coordinator.py, heartbeat.py,
incremental_alter_configs.py, join_group.py, leave_group.py, list_groups.py, list_offsets.py, metadata.py,
offset_commit.py, offset_delete.py, offset_fetch.py, produce.py, sync_group.py.

Bytes are read and written by `events/kafka/codec/`. Of the rules only the commands and outcomes are known here; nothing
of sockets, logs or stored events. A handler reads a decoded request and answers with a mapping that holds the fields of
all versions; what a version lacks is dropped. Schemas are loaded when a version is first spoken, so that starting up is
quick.
"""
