"""Real clients against a real Muster: each library, static and dynamic, and the tools that come with Kafka.

consumers.py         a consumer of each library in a thread of its own, all with one face
crew.py              the consumers of one group
transactions.py      an application that consumes, transforms and produces in transactions
foreign/             clients in other languages
endings/             what clients show of their ends, an experiment outside CI
through_sidecar/     all of them through a sidecar, in front of a real cluster
probe.py             what Muster says of a group, asked over a socket of our own
test_consumers.py    what groups of consumers go through
test_reliance.py     what consumers rely on when something goes wrong
test_admin.py        the administrators' clients of two libraries
test_data.py         that there is no data
test_java_tools.py   Kafka's own tools
test_java_reliance.py   what the Java consumer sends, and relies on
"""
