"""The tables that a build makes of a log, and a closed thing -> a row.

schemas.py               each table, its columns, and the version of the rules
values.py                numbers and times as columns have them
rebalances.py            a rebalance -> a row
incidents.py             an incident -> a row
memberships.py           the stays of a group's members
coordinator_downtime.py  a time without a coordinator -> a row
quarantine.py            a record that cannot be read -> a row
group_day.py             a group's day, from the rows of others
storms.py                incidents of several groups that are one
flapping.py              processes that came and went again and again
days.py                  what the last three share: a table of days, made by DuckDB
builds.py                which files the tables consist of, and the lock of who makes them
parts.py                 rows -> Parquet files, in bounded memory
"""
