"""The log in an SQLite file.

disk_thread.py    A thread for calls that wait for a disk, and may wait for ever.
ends.py           The ends of the partitions, noted beside the file: by that is told what its end lacks.
failures.py       SQLite's errors as the log's: the disk may recover, another program has the file, it is damaged.
file.py           One SQLite file, one thread that writes it: what the event log and the offset store of standalone
                  mode share.
log.py            The event log in one SQLite file: the embedded default, without any server.
open.py           Opening a SQLite file for writing or for reading, and the lock that keeps a second writing process
                  out.
file_identity.py  Whether a path still names the file that was opened under it.
permissions.py    Whether this process may use a SQLite file, and the files beside it; if not, what or whose they are.
salvage.py        Reading around what is damaged, for those who only look: the records that can still be read.
schema.py         The tables of an event log in a SQLite file: made when the file is new, checked when it is not.
write_ahead.py    Whether the write-ahead log beside a file is all there.
statements.py     The statements on the tables of an event log: one function for each call of log.py.
trim.py           Trimming: compacting records older than the audit window, as Kafka compacts a topic.
"""
