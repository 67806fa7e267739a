"""The history of every group as tables: the same fold and the same causes as `muster replay why`.

    build.py       what a log has told since the last build -> parts of tables
    builds.py      which files the tables consist of, and the lock of who makes them
    stage.py       an archive's files, or copies of another log's records: pieces, undecoded
    joining.py     small files of what is closed, joined into fewer
    room.py        a disk without room, and files that are whole or gone
    pieces.py      pieces at a glance, and the records of groups in them
    fold.py        records of one group -> rows of all tables, in one pass (pure)
    carry.py       groups to which nothing happened: their open rows are copied
    open_items.py  what is open at the end of a build, carried over to the next
    tables/        what was folded: schemas, rows, files
    engines/       what brings each group's records in order to the fold: this process, or Spark
    choice.py      which engine builds, and which one archives
    session.py     the Spark session, and Spark's errors in a line
    java.py        is there a Java runtime that Spark can use?
    queries.py     the usual questions, by DuckDB
    show.py        answers as tables, JSON, Markdown
    questions_cli.py  the options of `muster fleet top` and its like; questions.py: what they do
    report/        `muster fleet report`: one page of all of it
    asked.py       the values of options
    simulation/    groups that are played, and the truth of what was done to them
    archive/       the commands that keep an archive, and the archiver on Spark
    cli.py         `muster fleet ...`: its options
    commands.py    what `build` does
    needs.py       is the extra there?

PyArrow, DuckDB and PySpark are an extra, `fleet`: nothing outside this folder imports them, nothing here before a
command needs them.
"""
