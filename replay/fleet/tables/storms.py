"""The table `storms`: incidents of several groups that are one. The rules and the numbers are those of `digest`."""

from typing import Final

from muster.replay.incidents.windows import STORM_GROUPS_MIN, STORM_NEXT_MS
from muster.replay.results.digest import NOWHERE, OF_PROCESSES, OUTAGES


def _listed(words: tuple[str, ...] | frozenset[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


_IS_SOMEWHERE: Final = " and ".join(f"not starts_with(host, '{each}')" for each in NOWHERE)

QUERY: Final = f"""
with
hosts as (
    select
        kind, group_id, incident, started_at, ended_at, rebalances, rebalancing_ms, partition_ms,
        list_distinct(list_transform(client_hosts, lambda each: ltrim(each, '/'))) as all_hosts
    from incidents
    where day between (select min(day) - 1 from touched) and (select max(day) + 1 from touched)
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
),
stormy as (
    select
        kind, client_host, min(started_at)::date as day, min(started_at) as started_at, max(ended_at) as ended_at,
        list(distinct group_id order by group_id) as groups, count(*) as incidents, sum(rebalances) as rebalances,
        sum(coalesce(rebalancing_ms, 0)) as rebalancing_ms, sum(coalesce(partition_ms, 0)) as partition_ms
    from runs group by kind, client_host, run
    having count(distinct group_id) >= {STORM_GROUPS_MIN}
)
select * from stormy semi join touched using (day) order by day, started_at, kind, client_host
"""  # noqa: S608
