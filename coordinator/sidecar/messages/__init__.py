"""Kafka's messages as they pass through: what is read of requests, what is changed in answers.

request_plan.py    what is done with a client's request: handled here, or relayed
request_start.py   reads the first fields of a request that has not arrived in full
entry_limits.py    limits the entries of relayed requests whose answers are rewritten or keep a broker busy
produce.py         Produce (key 0): whether it will be answered, and whether it names a topic of Muster's own
reserved_names.py  Muster's own topics and transactional ids, which are refused to clients
shadow_commits.py  puts the shadow's member id, generation and instance id into a commit
rewriting.py       rewrites answers that carry broker addresses, and the versions offered
own_requests.py    requests of Muster's own on a client's connection; kio's messages as bytes
"""
