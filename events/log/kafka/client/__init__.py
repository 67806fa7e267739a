"""The link to the Kafka cluster that has the log.

connections.py     Connections to the brokers of a cluster, opened when they are needed.
errors.py          What goes wrong between the log and its brokers: what may be tried again, and what may not.
link.py            The way to the brokers of the log's cluster: each request to the right broker.
metadata.py        What a cluster says of itself: its brokers, and who leads the partitions of the topics that are
                   followed.
settings.py        The settings that the guarantees of the Kafka log rest upon: what we set, what we refuse, what we
                   warn of.
versions.py        Which requests a broker must know for an event log, and in which versions.
"""
