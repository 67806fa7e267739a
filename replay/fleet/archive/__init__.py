"""`muster fleet archive`, `verify`, `compact` and `expire`; the archive itself is in `muster.replay.archive`.

cli.py        their options
commands.py   implements them
streaming.py  the archiver on Spark, with its Kafka source
connector.py  connection options of that source
"""
