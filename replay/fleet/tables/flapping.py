"""The table `flapping_members`: processes that joined a group repeatedly in a day.

Dynamic members with the same client id and host at the same time are indistinguishable, so a process counts as flapping
only if there were more joins than the number of such members at one time accounts for.

Joins with an external cause are left out: those of processes that a deployment replaced, of a planned change, and of
members that lost their places in a coordinator outage. So being deployed three times a day is not flapping.
"""

from typing import Final

from muster.replay.incidents.kinds import assignor_change, blue_green, coordinator_outage, deployment, planned
from muster.replay.incidents.windows import CRASH_LOOP_TIMES_MIN, DEPLOYMENT_NEXT_MS

_REPLACING: Final = ", ".join(f"'{kind.name}'" for kind in (deployment.KIND, blue_green.KIND, assignor_change.KIND))
"""Kinds whose culprits are the processes that were replaced, by their old and new member ids."""

_OF_ALL: Final = ", ".join(f"'{kind.name}'" for kind in (planned.PLANNED, coordinator_outage.OUTAGE))
"""Kinds that are not caused by members."""

QUERY: Final = f"""
with
nearby as (
    select group_id, kind, culprits, started_at, coalesce(ended_at, started_at) as ended_at
    from incidents
    where day between (select min(day) - 1 from touched) and (select max(day) + 1 from touched)
),
replaced as (
    select group_id, unnest(culprits) as name, started_at - to_milliseconds({DEPLOYMENT_NEXT_MS}) as from_at, ended_at
    from nearby where kind in ({_REPLACING})
),
stays as (
    select
        group_id, day, member_id, group_instance_id, joined_at, left_at, stay_ms,
        coalesce(group_instance_id, client_id || ' at ' || ltrim(client_host, '/')) as process,
        group_instance_id is not null as is_static
    from memberships semi join touched using (day)
),
own as (
    select * from stays
    where not exists (
        from nearby
        where nearby.kind in ({_OF_ALL}) and nearby.group_id = stays.group_id
            and stays.joined_at between nearby.started_at and nearby.ended_at
    )
    and not exists (
        from replaced where replaced.group_id = stays.group_id and replaced.name = stays.member_id
    )
    and not exists (
        from replaced
        where replaced.group_id = stays.group_id and replaced.name = stays.group_instance_id
            and stays.joined_at between replaced.from_at and replaced.ended_at
    )
),
many as (
    select * from own
    qualify count(*) over (partition by group_id, day, process, is_static) >= {CRASH_LOOP_TIMES_MIN}
),
moments as (
    select group_id, day, process, is_static, joined_at as moment, 1 as change from many
    union all
    select group_id, day, process, is_static, left_at, -1 from many where left_at is not null
),
crowds as (
    select group_id, day, process, is_static, max(there) as at_once
    from (
        select *, sum(change) over (
            partition by group_id, day, process, is_static order by moment, change rows unbounded preceding
        ) as there
        from moments
    )
    group by all
),
started as (
    select
        group_id, day, count(*) as triggered, trigger_group_instance_id is not null as is_static,
        coalesce(trigger_group_instance_id, trigger_client_id || ' at ' || ltrim(trigger_client_host, '/')) as process
    from rebalances semi join touched using (day) where trigger_client_id is not null group by all
)
select
    group_id, day, process, is_static, count(*) as stays, any_value(at_once) as at_once, min(joined_at) as first_at,
    max(joined_at) as last_at, min(stay_ms) as shortest_ms, coalesce(any_value(triggered), 0) as triggered
from many
join crowds using (group_id, day, process, is_static)
left join started using (group_id, day, process, is_static)
group by group_id, day, process, is_static
having count(*) >= {CRASH_LOOP_TIMES_MIN} * greatest(any_value(at_once), 1)
order by day, group_id, process
"""  # noqa: S608
