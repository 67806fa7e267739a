"""The log in a Kafka topic.

client/        the link to the Kafka cluster that has the log
batches.py     Transitions as Kafka's record batches (message format 2).
contents.py    What a topic that exists already holds: nothing, Muster's records, or somebody else's.
decoding.py    Fetched bytes as records: whose they are, and no more of them at a time than can be borne.
decompress.py  A compressed batch without its compression, up to a limit: a few KiB may stand for many GiB.
log.py         The Kafka event log: one compacted topic, whose broker refuses deposed writers.
marks.py       Which records of an event topic an owner wrote: the header `muster`, and from which offset on it
               counts.
names.py       The names that an event log takes in its cluster: topics, and the transactional ids of its owners.
origin.py      Where an event topic comes from: its cluster, the format level of who wrote last, and how many
               partitions it had.
producer.py    The writer of one partition: Kafka's own fence, without transactions.
reader.py      Reading a partition of the event topic: offsets, the records between two of them, and who wrote last.
topic.py       The event topic itself: found, made when it is missing, its settings read.
"""
