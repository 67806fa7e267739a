"""Same script, two servers: a real Kafka broker and Muster must give the same answers.

    wire.py          raw requests in any version, through kio; answers as plain fields
    eras.py          which versions of all APIs were current together
    servers.py       the pairs of a Kafka and a Muster with the same settings
    stage.py         one run of a script on one server: its members, its group, its transcript
    transcript.py    what was asked and answered, ids aside
    script.py        the registry of scripts
    passing_time.py  time that passes in a script, and asking again and again meanwhile
    scripts/         the scripts, by theme; the rules they show are numbered as in the catalogue
    playbook.py      all of them
    playing.py       runs scripts on both servers, in each era that they have, and compares
    test_conformance.py   those that take seconds; long_conformance.py those that take minutes
    test_restarts.py      both servers are killed and started again: what a group is then
    test_reasons.py       why a group rebalanced: the lines of Kafka's log beside Muster's events
    rules.toml       every rule of the catalogue, and the tests that show it; rules.py reads it and prints the table

A script is an async function on a `Stage`. It knows neither which server it talks to, nor versions. What it awaits is
written into the transcript; the two transcripts must be equal. A parked request is awaited when something else has
made its answer due: nothing ever sleeps, and what needs time to pass is watched with DescribeGroups (`Stage.until`).

Member ids become names, in a transcript, as do group ids and topic ids. Where Kafka's choice is free (the next leader)
a script gives its members new names by their role (`Stage.rename`). Where Muster deliberately answers otherwise, the
script says so, with the reason, and asserts both answers (`Stage.differs`).
"""
