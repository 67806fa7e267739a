"""The event log in a Kafka topic.

client/        the link to the Kafka cluster that has the log
batches.py     Transitions as Kafka's record batches (message format 2).
decoding.py    Decodes fetched bytes into records, in pieces, and marks foreign records.
decompress.py  Decompressing a batch up to a limit: a few KiB may stand for many GiB.
log.py         The Kafka event log: one compacted topic, whose broker refuses deposed writers.
marks.py       Tells owners' records from foreign ones: the header `muster`, and the offset from which it counts.
names.py       The names that an event log takes in its cluster: topics, and the transactional ids of its owners.
origin.py      An existing topic: whose records it has, its cluster, format level and number of partitions.
producer.py    The writer of one partition: Kafka's own fence, without transactions.
reader.py      Reading a partition of the event topic: offsets, the records between two of them, and who wrote last.
resent_batches.py   Last batches sent again, those of one broker in one request: the proof of many writers.
signs.py       Signs of life of owners: plain records in the topic of the fencing probe, beside the events.
topic.py       The event topic itself: found, made when it is missing, its settings read.
"""
