"""Kafka's messages: bytes in, commands out; outcomes in, bytes out. The only place that knows API versions.

    api.py         what one API is: key, versions, handler; the facts a handler gets; ways in which a request is broken
    reading.py     readers that trust no length they are told
    writing.py     writers that take the fields of all versions, and write those of one
    messages.py    one version of one API: its request read, its response written
    gather.py      one request that becomes many commands
    registry.py    all APIs that are offered; ApiVersions is derived from it
    dispatch.py    a frame on its way to a handler
    join_group.py and the others: one file per API, its version notes on top, one registration at the end

Of the rules only the commands and outcomes are known here; nothing of sockets, logs or stored events. A handler reads
a decoded request and answers with a mapping that holds the fields of all versions; what a version lacks is dropped.
Schemas are loaded when a version is first spoken, so that starting up is quick.
"""
