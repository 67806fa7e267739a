"""The real runtime and Kafka log in virtual time, on brokers that hang, disappear, move leaders and lose topics.

It has a network without sockets, a small cluster behind it, and tests that read like a list of what happens to it. Each
fault is one line: `cluster.hang(1)`, `cluster.stop(1)`, `cluster.fail_over(1)`, `cluster.recreate("events")`.
"""
