"""Real clients through a sidecar, in front of a real cluster of three brokers.

sidecar.py                 a running sidecar, and the brokers' own view
member.py                  a member of a group, step by step, in the terms of the protocol
holding_proxy.py           a proxy between the sidecar and a broker that can delay a request
test_consumers.py          groups of consumers of each library, and of all together
test_producers.py          producers of each kind, compressed and large
test_transactions.py       consuming and producing in transactions
test_connections.py        many connections at a time
test_failures.py           brokers and the sidecar itself are killed and restarted; expiry of offsets
test_fencing.py            a commit that is delayed on its way; how long a group takes to form
"""
