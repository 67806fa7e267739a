"""The whole runtime without a real clock, disk or network: time only passes when there is nothing else to do.

One process, driven by a test:

    virtual_time.py     an event loop in virtual time
    process.py          a runtime on a log in memory

Several processes, on one seed (`python -m tests.simulation`, `make simulate`):

    world.py            virtual time for many event loops, each with its own clocks; pauses, and ends
    network.py          connections and questions: latency, loss, cuts; a loop connects and listens by it
    stand_ins.py        what stands in for a machine's clock, collector and metrics
    log_broker.py       a topic as Kafka keeps it: epochs that fence, batches that are repeated
    remote_log.py       an event log on it, by attempts
    muster_server.py    a process of Muster in that world: its machine, its clocks, its log, and how it ends
    standalone_server.py    one without upstream: wire, rules, runtime, ownership, offsets; Kafka's stand-in, too
    sidecar_server.py   one in front of Kafka, whole: clients' connections, frontend, links, owner, shadows
    kafka.py            the broker that coordinates the ownership group, and that sidecars stand in front of
    client.py           a client that goes from address to address
    members.py          consumers, static and dynamic, some slow, some wrong
    ledger.py           the responses that they received
    schedule.py         which processes exist, and which fault happens when
    verdict.py          the invariants, numbered
    broken_builds.py    Muster with one safeguard taken out, which has to be noticed
    run.py              one seed, and many

The processes of one log elect their owners themselves: each is a member of the ownership group, by its own client
(coordinator/peers), on connections of the simulated network. The group's coordinator is killed, paused and cut off like
all others; owners continue meanwhile.

Sidecars forward to each other on real links (coordinator/peers/link): an answer goes from the owner to the frontend,
and from there to the client. So `Departure` records two things about arriving bytes: which process made them, and when;
and when they were passed on. From that the ledger knows whose answer a client has accepted.

    member ─► frontend (ClientSide, Frontend, Owners) ─► link ─► owner (ForwardedRequests, runtime) ─► log_broker
                        │                          ◄─ answer, question to the broker ◄─┘
                        └─► kafka (the client's own connection: its rights, its commits)
"""
