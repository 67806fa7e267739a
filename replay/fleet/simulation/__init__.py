"""Simulated groups: scenarios cause incidents in simulated processes, and the coordinator's own rules produce the
events.

The ground truth is what was done to the processes, recorded by the scenario that did it; its time spans come from the
world's own view of the group's state. It is never derived from events, nor from how a program groups them.

    cli.py          the options of `muster fleet simulate`
    commands.py     implements it
    fleet.py        a fleet's groups, teams, partitions and days: the rates of scenarios and outages, by hour
    week.py         a group over several days, and its ground truth as a line of JSON
    spool.py        all groups, simulated one by one, merged by time for each partition
    sinks.py        the archive, SQLite file or topic that receives the events
    stage.py        a randomly drawn group, the operations on its processes, and scenarios by name
    scenarios/      what is done to groups
    world/          one group: its processes, its coordinator, time
"""
