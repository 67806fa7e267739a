"""The link to the Kafka cluster that has the log.

errors.py          What goes wrong between the log and its brokers: what may be tried again, and what may not.
followed.py        The topics of a log as the cluster tells of them: who leads their partitions, and whether they are
                   still the same.
link.py            The way to the brokers of the log's cluster: each request to the right broker.
settings.py        The settings that the guarantees of the Kafka log rest upon: what we set, what we refuse, what we
                   warn of.
versions.py        Which requests a broker must know for an event log, and in which versions.
"""
