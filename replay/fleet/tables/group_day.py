"""The table `group_day`: a group's day, by SQL over the rows that began on it.

Partitions that moved are those of its incidents, as the replay adds them up: a cooperative assignor takes a partition
away in one rebalance and hands it on in the next, so that neither of them alone has moved it.
"""

from typing import Final

QUERY: Final = """
with
began as (
    select
        group_id, day, count(*) as rebalances, sum(coalesce(duration_ms, 0)) as rebalancing_ms,
        max(duration_ms) as longest_ms, sum(coalesce(partition_ms, 0)) as partition_ms,
        sum(avoided) as avoided, max(members_after) as members_max
    from rebalances semi join touched using (day) group by all
),
told as (
    select
        group_id, day, sum(coalesce(silent_partition_ms, 0) + empty_partition_ms) as beside_ms, count(*) as incidents,
        count(*) filter (grade = 'unknown' or kind = 'unknown') as unknown, sum(partitions_moved) as partitions_moved,
        first(kind order by known_partition_ms desc, coalesce(rebalancing_ms, 0) desc, started_at, incident)
            as worst_kind
    from incidents semi join touched using (day) group by all
),
came as (select group_id, day, count(*) as joined from memberships semi join touched using (day) group by all),
went as (
    select group_id, left_at::date as day, count(*) as gone
    from memberships where left_at::date in (select day from touched) group by all
),
away as (
    select group_id, day, sum(longest_ms) as downtime_ms from coordinator_downtime semi join touched using (day)
    group by all
)
select
    group_id, day, coalesce(rebalances, 0) as rebalances, coalesce(rebalancing_ms, 0) as rebalancing_ms, longest_ms,
    coalesce(partition_ms, 0) + coalesce(beside_ms, 0) as partition_ms,
    coalesce(partitions_moved, 0) as partitions_moved,
    coalesce(avoided, 0) as avoided, coalesce(incidents, 0) as incidents, coalesce(unknown, 0) as unknown, worst_kind,
    coalesce(joined, 0) as joined, coalesce(gone, 0) as "left", members_max, coalesce(downtime_ms, 0) as downtime_ms
from began
full join told using (group_id, day)
full join came using (group_id, day)
full join went using (group_id, day)
full join away using (group_id, day)
order by day, group_id
"""
