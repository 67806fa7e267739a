"""Connections to a Kafka cluster, for the event log, for the shadows upstream and for administrators.

addresses.py       Parses HOST:PORT, and remembers the brokers that a cluster has named.
asked_entries.py   Checks that a response has the entries that were requested.
codec/             Kafka's messages as bytes, by kio's schemas: read, written, cut; also for our own clients.
connect.py         Opens a connection to a broker, and warns about a password that is sent unencrypted.
connections.py     Connections to the brokers of one cluster, opened on demand.
errors.py          The errors of requests to brokers: retry, outcome unknown, refused.
exchange.py        Sends kio's requests over aiokafka's connections, and reads the responses.
failures.py        Sorts the errors of aiokafka and of the event loop.
first_answer.py    Hedges requests that any broker can answer: the next broker is asked if one is silent.
link.py            The brokers of a cluster: the base of the log's link and of upstream's.
metadata.py        Metadata: a cluster's id and its brokers.
requests.py        The requests that an event log needs, each in the versions that Muster uses.
security.py        The security settings of a cluster, by the names of Kafka's own client properties.
shortage.py        Errors of ours when a connection is opened: ports or files that have run out.
tls_files.py       Loads certificates and keys into an `ssl.SSLContext`; each error is one line that names the file.
"""
