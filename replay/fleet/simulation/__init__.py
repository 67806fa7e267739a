"""Groups that are played: incidents are done to simulated processes, and the rules of the coordinator make the events.

The truth is what was done to the processes, written down by the scenario that did it; its spans are the world's own
view of the group's state. Nothing here is derived from events, or knows how a program groups them.

    rules.py        the coordinator of one group: the rules, and the history that its log tells
    setup.py        how a process is configured, and where a group lives
    process.py      one consumer process
    requests.py     its requests, as its client library writes them
    assignors.py    what a leader makes of its members
    world.py        time, requests and answers
    outages.py      what happens to the coordinator and to the network
    view.py         the rebalances, as the world sees them, and whose they are
    truth.py        an incident while it is being done, and what is left of it
    stage.py        a group drawn by lot, and what can be done to its processes
    scenario.py     scenarios by name; scenarios/ has them
    calendar.py     a fleet's days: the rates of deeds and outages, by hour
    fleet.py        a fleet's groups, teams and partitions
    week.py         a group over days
    told.py         the truth of a group as a line of JSON
    spool.py        all groups, played one by one, merged by time for each partition
    sinks.py        an archive, a SQLite file or a topic that gets the events
    cli.py          `muster fleet simulate`: its options
    commands.py     what it does
"""
