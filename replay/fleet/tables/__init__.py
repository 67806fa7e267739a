"""The tables that a build makes from a log, and the conversion of closed items to rows.

schemas.py      each table, its columns, and the version of the rules
rows.py         rows of rebalances, incidents, times without a coordinator and unreadable records
memberships.py  the stays of a group's members
storms.py       incidents of several groups with a common cause
flapping.py     processes that joined and left repeatedly
days.py         the daily tables (`group_day` and the two above), computed by DuckDB
builds.py       the list of files that the tables consist of, and the lock against a second build
parts.py        rows -> Parquet files, in bounded memory
"""
