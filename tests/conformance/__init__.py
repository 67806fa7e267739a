"""Same script, two servers: a real Kafka broker and Muster must give the same answers.

    wire.py          raw requests in any version, through kio; responses as plain fields
    eras.py          which versions of all APIs were current together
    servers.py       the pairs of a Kafka and a Muster with the same settings
    stage.py         one run of a script on one server: its members, its group, its transcript
    transcript.py    the requests and responses, without ids
    script.py        the registry of scripts
    passing_time.py  letting time pass in a script, with repeated requests
    scripts/         the scripts, by theme; the rules they show are numbered as in the catalogue
    playbook.py      all of them
    playing.py       runs scripts on both servers, in each era that they have, and compares
    test_conformance.py   those that take seconds; long_conformance.py those that take minutes
    test_restarts.py      both servers are killed and restarted: the group after that
    test_reasons.py       why a group rebalanced: the lines of Kafka's log compared with Muster's events
    rules.toml       every rule of the catalogue, and the tests that show it; rules.py reads it and prints the table

A script is an async function on a `Stage`. It depends neither on the server nor on versions. What it awaits is
written into the transcript; the two transcripts must be equal. A parked request is awaited after another step has made
its response due: scripts never sleep, and wait for time-outs with DescribeGroups (`Stage.until`).

In a transcript member ids, group ids and topic ids become names. Where Kafka's choice is free (the next leader)
a script gives its members new names by their role (`Stage.rename`). Where Muster deliberately differs, the
script gives the reason, and asserts both responses (`Stage.differs`).
"""
