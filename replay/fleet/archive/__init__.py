"""`muster fleet archive`, `verify`, `compact` and `expire`; what an archive is stands in `muster.replay.archive`.

cli.py        their options
commands.py   what they do
streaming.py  the archiver on Spark, with its Kafka source
connector.py  how that source reaches a cluster
"""
