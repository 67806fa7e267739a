"""Clients in other languages: kafkajs where node is installed, franz-go where go is.

programs.py     how they are fetched and built, once for each version
client.py       a running client, and its events
consumers.py    consumers with the common interface
kafkajs/, franz_go/     the programs, with pinned versions of their libraries

Each program takes one argument, a JSON object of settings: `bootstrap`, `topic`, and for a consumer `group_id`,
`instance_id` (empty: a dynamic member), `session_ms`, `heartbeat_ms`. It reads requests from its standard input and
writes events to its standard output, one JSON object per line. At the end of its input it closes its client
cleanly and exits, within 15 s in any case, so it never outlives the tests.

request         {"id": 1, "do": "commit", "partition": 0, "offset": 5}
                {"id": 2, "do": "committed", "partition": 0}
                {"id": 3, "do": "produce", "partition": 0, "value": "text"}
answer          {"event": "done", "id": 1, "result": null, "error": "..."}      `error` only if there is one
assigned        {"event": "assigned", "partitions": [0, 1], "member_id": "...", "generation_id": 1 or null}
revoked, lost   {"event": "revoked", "partitions": [0, 1]}      kafkajs: without `partitions`, when a rebalance starts
record          {"event": "record", "partition": 0, "offset": 4, "value": "text"}
error           {"event": "error", "message": "...", "is_fatal": false}
closed          {"event": "closed"}
"""
