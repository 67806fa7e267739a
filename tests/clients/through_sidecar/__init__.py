"""Real clients through a sidecar, in front of a real cluster of three brokers.

sidecar.py                 a sidecar that runs, and what the brokers behind it say
member.py                  a member of a group, step by step, in the words of the protocol
holding_proxy.py           a proxy between the sidecar and a broker, that holds a request back
test_consumers.py          groups of consumers of each library, and of all together
test_producers.py          producers of each kind, compressed and large
test_transactions.py       consuming and producing in transactions
test_connections.py        many at a time
test_failures.py           brokers and the sidecar itself are killed and restarted; what expires meanwhile
test_fencing.py            a commit that is held up on its way; how long a group takes to form
"""
