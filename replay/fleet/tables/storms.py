"""The table `storms`: incidents of several groups with a common cause. The rules and thresholds are those of `digest`.

A run is a series of incidents of one host, or of coordinators, each of which began soon after the previous one. It is a
storm if it affects enough groups. A run may last for days: if it includes a touched day, all of it is read, and the day
on which it began is rebuilt.
"""

from collections.abc import Set
from typing import Final

import duckdb

from muster.replay.incidents.windows import STORM_GROUPS_MIN, STORM_NEXT_MS
from muster.replay.results.storms import NOWHERE, OF_PROCESSES, OUTAGES


def _listed(words: tuple[str, ...] | frozenset[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_IS_SOMEWHERE: Final = " and ".join(f"not starts_with(host, '{each}')" for each in NOWHERE)

_RUNS: Final = f"""
with
hosts as (
    select
        kind, group_id, incident, day, started_at, ended_at, rebalances, rebalancing_ms, known_partition_ms,
        list_distinct(list_transform(client_hosts, lambda each: ltrim(each, '/'))) as all_hosts
    from incidents
    where day - date '1970-01-01' between (select first from read_days) and (select last from read_days)
),
chosen as (
    select 'coordinator' as kind, null as client_host, * exclude (kind, all_hosts) from hosts
    where kind in ({_listed(OUTAGES)})
    union all
    select 'host', host, * exclude (kind, all_hosts, somewhere, host)
    from (
        select *, list_filter(all_hosts, lambda host: host <> '' and {_IS_SOMEWHERE}) as somewhere, somewhere[1] as host
        from hosts
    )
    where kind in ({_listed(OF_PROCESSES)}) and len(somewhere) = 1
),
begun as (
    select *, started_at - lag(started_at) over of_kind > interval '{STORM_NEXT_MS} milliseconds' as is_new
    from chosen window of_kind as (partition by kind, client_host order by started_at, group_id, incident)
),
runs as (
    select *, sum(coalesce(is_new, true)::int) over (
        partition by kind, client_host order by started_at, group_id, incident
    ) as run
    from begun
)
"""  # noqa: S608

_DAYS_OF_RUNS: Final = f"""
{_RUNS}
select distinct min(day) - date '1970-01-01', max(day) - date '1970-01-01', bool_or(day in (from touched))
from runs group by kind, client_host, run
"""  # noqa: S608

QUERY: Final = f"""
{_RUNS},
stormy as (
    select
        kind, client_host, min(started_at)::date as day, min(started_at) as started_at, max(ended_at) as ended_at,
        list(distinct group_id order by group_id) as groups, count(*) as incidents, sum(rebalances) as rebalances,
        sum(coalesce(rebalancing_ms, 0)) as rebalancing_ms, sum(known_partition_ms) as partition_ms
    from runs group by kind, client_host, run
    having count(distinct group_id) >= {STORM_GROUPS_MIN}
)
select * from stormy semi join touched using (day) order by day, started_at, kind, client_host
"""  # noqa: S608


def days_of_storms(connection: duckdb.DuckDBPyConnection, touched: Set[int]) -> set[int]:
    """The touched days, and the first days of runs that include one of them; counted from 1970.

    Leaves in the table `read_days` the first and the last day with incidents that belong to runs of these days.
    """
    first, last = min(touched) - 1, max(touched) + 1
    while True:
        bounds = {"first": first, "last": last}
        connection.execute("create or replace table read_days as select $first as first, $last as last", bounds)
        runs = connection.execute(_DAYS_OF_RUNS).fetchall()
        days = {*touched, *(begin for begin, _, is_touched in runs if is_touched)}
        may_begin_before = min(days) <= first
        may_go_on = any(end >= last for begin, end, _ in runs if begin in days)
        if not (may_begin_before or may_go_on):
            return days
        first, last = first - may_begin_before, last + may_go_on
