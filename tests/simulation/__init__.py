"""The whole runtime without a real clock, disk or network: time only passes when there is nothing else to do.

One process, driven by a test:

    virtual_time.py     an event loop in virtual time
    process.py          a runtime on a log in memory

Several processes, on one seed (`python -m tests.simulation`, `make simulate`):

    world.py            virtual time for many event loops, each with its own clocks; pauses, and ends
    network.py          connections and requests: latency, loss, cuts; loops connect and listen through it
    stand_ins.py        stand-ins for a machine's clock, collector and metrics
    log_broker.py       a topic as Kafka keeps it: fencing epochs, repeated batches
    remote_log.py       an event log on it, with retries
    muster_server.py    a process of Muster in that world: its machine, its clocks, its log, and how it ends
    standalone_server.py    a standalone one: wire, rules, runtime, ownership, offsets; also Kafka's stand-in
    sidecar_server.py   a whole one in front of Kafka: clients' connections, frontend, links, owner, shadows
    kafka.py            the broker behind the sidecars, which coordinates the ownership group
    client.py           a client that goes from address to address
    members.py          consumers, static and dynamic, some slow, some faulty
    ledger.py           the responses that they received
    schedule.py         the processes, and the times of the faults
    verdict.py          the invariants, numbered
    broken_builds.py    Muster without one safeguard, which has to be noticed
    run.py              one seed, and many

The processes of one log elect their owners themselves: each is a member of the ownership group through its own client
(coordinator/peers), on connections of the simulated network. The group's coordinator is killed, paused and cut off like
all others; owners continue meanwhile.

Sidecars forward to each other on real links (coordinator/peers/link): an answer goes from the owner to the frontend,
and from there to the client. So `Departure` records two things about arriving bytes: which process made them, and when;
and when they were passed on. From that the ledger knows which process gave the response that a client accepted.

    member ─► frontend (ClientSide, Frontend, Owners) ─► link ─► owner (ForwardedRequests, runtime) ─► log_broker
                        │                          ◄─ answer, question to the broker ◄─┘
                        └─► kafka (the client's own connection: its rights, its commits)
"""
