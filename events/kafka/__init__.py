"""The way to a Kafka cluster, for whoever needs one: the log, the shadows upstream, an administrator.

connect.py         Opening a connection to a broker: the one call of aiokafka's in which a fault of its own is no
                   bug of ours.
exchange.py        A request of kio's through a connection of aiokafka's.
failures.py        What aiokafka and the event loop raise of a connection to a broker, sorted by what follows from
                   it.
first_answer.py    A question that any broker can answer is put to another one too when the first is silent.
security.py        How a Kafka cluster is reached, by the names of Kafka's own client properties.
tls_files.py       Certificates and keys from files, into an `ssl.SSLContext`; whatever is wrong with a file is one
                   line that names it.
unencrypted.py     A password that goes over the network as it is: told once a process.
"""
