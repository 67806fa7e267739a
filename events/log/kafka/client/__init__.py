"""The link to the Kafka cluster that has the log.

connect.py         Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no
                   bug of ours.
connections.py     Connections to the brokers of a cluster, opened when they are needed.
errors.py          What goes wrong between the log and its brokers: what may be tried again, and what may not.
exchange.py        A request of kio's through a connection of aiokafka's.
failures.py        What aiokafka and the event loop raise of a connection to a broker, sorted by what follows from
                   it.
first_answer.py    A question that any broker can answer is put to another one too when the first is silent.
link.py            The way to the brokers of the log's cluster: each request to the right broker.
metadata.py        What a cluster says of itself: its brokers, and who leads the partitions of the topics that are
                   followed.
security.py        How a Kafka cluster is reached, by the names of Kafka's own client properties.
settings.py        The settings that the guarantees of the Kafka log rest upon: what we set, what we refuse, what we
                   warn of.
tls_files.py       Certificates and keys from files, into an `ssl.SSLContext`; whatever is wrong with a file is one
                   line that names it.
unencrypted.py    A password that goes over the network as it is: told once a process.
versions.py        Which requests a broker must know for an event log, and in which versions.
"""
