"""The archive of an event log: every record that was ever written, once, in the order of its offsets, as files.

    files.py      what is done to files: the one place where a crash can come between two steps
    without_pandas.py   pyarrow without pandas, for all that use it here
    segment.py    a segment: a Parquet file with records of one partition and day
    manifest.py   manifests, the only truth about which segments there are
    commits.py    the one writer of an archive: its lock, its commits, leftovers of those that were killed
    digest.py     the digest of records, by which copies are compared
    writer.py     records of one partition, in offset order -> segments
    local.py      the archiver in this process, with the log's own reader
    verify.py     is the archive whole, unaltered, and as the topic is?
    sequences.py  the running numbers of groups: gaps and duplicates
    compact.py    many small segments of a day -> one
    expire.py     days that are given up
    log.py        an archive as an event log that is only read

docs/fleet-archive.md has the format. PyArrow is an extra, `fleet`: nothing outside imports this before it is needed.
"""
