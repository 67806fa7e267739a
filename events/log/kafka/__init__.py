"""The event log in a Kafka topic.

client/        the link to the Kafka cluster that has the log
batches.py     Transitions as Kafka's record batches (message format 2).
decoding.py    Decodes fetched bytes into records, in pieces, and marks foreign records.
decompress.py  Decompresses a batch up to a limit: a few KiB may expand to many GiB.
log.py         The Kafka event log: one compacted topic, whose broker refuses deposed writers.
marks.py       Distinguishes owners' records from foreign ones by the header `muster` and where it became mandatory.
names.py       The names that an event log uses in its cluster: topics, transactional ids, the owners' group.
opening.py     Opens the event topic: finds or creates it, and checks it before anything is claimed.
origin.py      An existing topic: whose records it has, its cluster, format level and number of partitions.
producer.py    The writer of one partition: Kafka's own fencing, without transactions.
reader.py      Reads a partition of the event topic: offsets, the records between two of them, and who wrote last.
resent_batches.py   Sends last batches again, one request per broker, to prove that no writer was deposed.
signs.py       Signs of life of owners: plain records in the topic of the fencing probe, alongside the events.
topic.py       The event topic itself: finding it, creating it if it is missing, reading its configs.
"""
