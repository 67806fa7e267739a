"""The history of every group as tables: the same fold and the same causes as `muster replay why`.

    cli.py         `muster fleet ...`: its options
    commands.py    what `build` does
    building/      what a log has told since the last build -> parts of tables
    tables/        what was folded: schemas, rows, files, and which files the tables consist of
    questions_cli.py  the options of `muster fleet top` and its like, and of `report`
    questions/     the usual questions, by DuckDB
    report/        `muster fleet report`: one page of all of it
    simulation/    groups that are played, and the truth of what was done to them
    archive/       the commands that keep an archive, and the archiver on Spark
    choice.py      which engine builds, and which one archives; are the extra and Java there?
    session.py     the Spark session, and Spark's errors in a line
    disk_space.py  a disk without space, and files that are whole or gone
    asked.py       the values of options

PyArrow, DuckDB and PySpark are an extra, `fleet`: nothing outside this folder imports them, nothing here before a
command needs them.
"""
