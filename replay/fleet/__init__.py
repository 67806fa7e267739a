"""The history of every group, with Spark: the same fold and the same causes as `muster replay why`.

    stage.py     a log copied into Parquet, undecoded
    fold.py      records of one group -> its rebalances, as rows (pure; runs in Spark's Python workers)
    build.py     stage -> sort within partitions -> fold -> table
    session.py   the Spark session
    archive/     every record that was ever written, as files
    java.py      is there a Java runtime that Spark can use?
    cli.py       `muster fleet ...`: its options
    archive_cli.py  ... of the commands that keep the archive
    commands.py  what it does

PySpark is an extra, `fleet`: nothing outside this folder imports it, nothing here before a command needs it.
"""
