"""The archive of an event log: every record ever written, exactly once and in offset order, as files.

    files.py      operations on files: the only place where a crash between two steps matters
    without_pandas.py   imports pyarrow without pandas, for every user of pyarrow here
    segment.py    a segment: a Parquet file with records of one partition and day
    manifest.py   manifests: the authoritative list of segments
    commits.py    the one writer of an archive: its lock, its commits, leftovers of killed writers
    deleted.py    records that were deleted from the log before they were archived
    digest.py     the digest of records, for comparing copies
    writer.py     records of one partition, in offset order -> segments
    local.py      the archiver in this process, with the log's own reader
    verify.py     checks that the archive is complete, unaltered and equal to the topic
    sequences.py  the sequence numbers of groups: gaps and duplicates
    compact.py    many small segments of a day -> one
    expire.py     removes old days
    log.py        an archive as a read-only event log

docs/fleet-archive.md has the format. PyArrow comes with the extra `fleet`: outside code imports this only when needed.
"""
