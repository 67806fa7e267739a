"""The tables that a build makes of a log, and a closed thing -> a row.

schemas.py      each table, its columns, and the version of the rules
rows.py         a rebalance, an incident, a time without a coordinator, a record that cannot be read -> a row
memberships.py  the stays of a group's members
storms.py       incidents of several groups that are one
flapping.py     processes that came and went again and again
days.py         a group's day, and what it shares with the last two: tables of days, made by DuckDB
builds.py       which files the tables consist of, and the lock of who makes them
parts.py        rows -> Parquet files, in bounded memory
"""
