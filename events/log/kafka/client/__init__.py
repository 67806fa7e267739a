"""The link to the Kafka cluster that has the log.

errors.py          The errors between the log and its brokers: those that are retried, and those that are not.
followed.py        The log's topics in Metadata: their partition leaders, and whether they were deleted or recreated.
link.py            The connections to the log's cluster, and each request to the right broker.
settings.py        The configs on which the guarantees of the Kafka log rest: those set, refused and warned of.
versions.py        The requests and versions that a broker must have for an event log.
"""
