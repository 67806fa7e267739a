"""Real clients against a real Muster: each library, static and dynamic, and the tools that come with Kafka.

consumers.py         a consumer of each library in its own thread, with a common interface
crew.py              the consumers of one group
transactions.py      an application that consumes, transforms and produces in transactions
foreign/             clients in other languages
endings/             how clients' connections end, an experiment outside CI
through_sidecar/     all of them through a sidecar, in front of a real cluster
probe.py             Muster's description of a group, over a separate socket
test_consumers.py    groups of consumers
test_reliance.py     the behaviour that consumers rely on in failures
test_admin.py        the admin clients of two libraries
test_data.py         topics without data
test_java_tools.py   Kafka's own tools
test_java_reliance.py   the requests of the Java consumer, and what it relies on
"""
