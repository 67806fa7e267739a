"""Clients in other languages: kafkajs where node is installed, franz-go where go is.

programs.py     how they are fetched and built, once for each version
client.py       one that runs, and what it tells
consumers.py    consumers with the face of all the others
kafkajs/, franz_go/     the programs; their libraries' versions are pinned there

Each program takes one argument, a JSON object of settings: `bootstrap`, `topic`, and for a consumer `group_id`,
`instance_id` (empty: a dynamic member), `session_ms`, `heartbeat_ms`. It reads requests from its standard input and
writes events to its standard output, one JSON object a line each. At the end of its input it closes its client in good
order and ends, within 15 s whatever happens: so it never outlives the tests.

request         {"id": 1, "do": "commit", "partition": 0, "offset": 5}
                {"id": 2, "do": "committed", "partition": 0}
                {"id": 3, "do": "produce", "partition": 0, "value": "text"}
answer          {"event": "done", "id": 1, "result": null, "error": "..."}      no `error` where there is none
assigned        {"event": "assigned", "partitions": [0, 1], "member_id": "...", "generation_id": 1 or null}
revoked, lost   {"event": "revoked", "partitions": [0, 1]}      of kafkajs: a rebalance has begun, and none are named
record          {"event": "record", "partition": 0, "offset": 4, "value": "text"}
error           {"event": "error", "message": "...", "is_fatal": false}
closed          {"event": "closed"}
"""
