"""The way to a Kafka cluster, for whoever needs one: the log, the shadows upstream, an administrator.

addresses.py       HOST:PORT, wherever it is given.
codec/             Kafka's messages as bytes, by kio's schemas: read, written, cut; also for our own clients.
connect.py         Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no
                   bug of ours.
connections.py     Connections to the brokers of one cluster, opened when they are needed.
errors.py          What comes of asking a broker, by what may follow from it.
exchange.py        A request of kio's through a connection of aiokafka's.
failures.py        What aiokafka and the event loop raise of a connection to a broker, sorted by what follows from
                   it.
first_answer.py    A question that any broker can answer is put to another one too when the first is silent.
link.py            Who is there, and each request to the right broker: the base of the log's link and of upstream's.
metadata.py        What a cluster says of itself: its id and its brokers.
security.py        How a Kafka cluster is reached, by the names of Kafka's own client properties.
tls_files.py       Certificates and keys from files, into an `ssl.SSLContext`; whatever is wrong with a file is one
                   line that names it.
unencrypted.py     A password that goes over the network as it is: told once a process.
"""
