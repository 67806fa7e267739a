"""Our own connections to the upstream cluster: who is there, and the shadows that hold our groups.

security.py      how the cluster is reached
link.py          the brokers, who coordinates a group, and the errors
coordinators.py  who coordinates which group, and when that broker was last away
cluster_outage.py  that nobody of the cluster answers: why, since when, what is said meanwhile
reachability.py  whether the members of a group can be heard through its coordinator upstream
whose.py         whether a group is ours to take
inhabitants.py   who is in a group upstream, and how one of them is taken out
shadow.py        what a shadow sends next (pure)
steps.py         that, as Kafka's requests
driver.py        sends it, until nothing is left to send
shadows.py       all shadows: what the rest of the coordinator asks for
"""
