"""Groups that are played: incidents are done to simulated processes, and the rules of the coordinator make the events.

The truth is what was done to the processes, written down by the scenario that did it; its spans are the world's own
view of the group's state. Nothing here is derived from events, or knows how a program groups them.

    cli.py          `muster fleet simulate`: its options
    commands.py     what it does
    fleet.py        a fleet's groups, teams and partitions, and its days: the rates of deeds and outages, by hour
    week.py         a group over days, and its truth as a line of JSON
    spool.py        all groups, played one by one, merged by time for each partition
    sinks.py        an archive, a SQLite file or a topic that gets the events
    stage.py        a group drawn by lot, what can be done to its processes, and scenarios by name
    scenarios/      what is done to groups
    world/          one group: its processes, its coordinator, time
"""
