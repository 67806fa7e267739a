"""The fleet: tables of the history of every group, by the same fold and the same causes as `muster replay why`.

    cli.py         the options of `muster fleet ...`
    commands.py    implements `build`
    building/      a build: turns new events into parts of tables
    tables/        schemas, rows and files of the tables, and the list of files that they consist of
    questions_cli.py  the options of `muster fleet top` and the like, and of `report`
    questions/     the common queries, in DuckDB
    report/        `muster fleet report`: one page with everything
    simulation/    simulated groups, and the ground truth of what was done to them
    archive/       the commands that maintain an archive, and the archiver on Spark
    choice.py      chooses the engine for builds and for the archiver; checks for the extra and for Java
    session.py     the Spark session, and Spark's errors in one line
    disk_space.py  detects a full disk; writes files completely or not at all
    asked.py       parses option values

PyArrow, DuckDB and PySpark come with the extra `fleet`: nothing outside this folder imports them, and nothing in it
does so before a command needs them.
"""
