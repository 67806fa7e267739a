"""Muster's own connections to the upstream cluster, and the shadows that keep its groups there.

security.py           how the cluster is reached: TLS and SASL
link.py               brokers, group coordinators, retries
errors.py             what a retry does not mend, and what a connection's failure means
partition_counts.py   how many partitions topics have
coordinators.py       the coordinator of each group, and when that broker was last away
cluster_outage.py     that no broker answers: why, since when, and what is logged meanwhile
reachability.py       whether a group's members can reach its coordinator upstream
group_probe.py        asks upstream whether a group is vacant
upstream_members.py   lists and removes the members of a group upstream
group_requests.py     the requests of a member of a group upstream
shadow.py             what a shadow sends next (pure)
shadow_requests.py    a shadow's actions as Kafka's requests
shadow_driver.py      sends a shadow's requests until none is left to send
retakes.py            the order in which the shadows of a former process join again
shadow_census.py      which shadows there are: for the status, the metrics and the last line of the log
shadows.py            all shadows: take a group, bump its generation, leave it
"""
