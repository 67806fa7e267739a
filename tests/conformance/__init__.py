"""Same script, two servers: a real Kafka broker and Muster must give the same answers.

    wire.py          raw requests in any version, through kio; answers as plain fields
    eras.py          which versions of all APIs were current together
    servers.py       the pairs of a Kafka and a Muster with the same settings
    stage.py         one run of a script on one server: its members, its group, its transcript
    transcript.py    what was asked and answered, ids aside
    script.py        the registry of scripts
    scripts_*.py     the scripts, by theme; the rules they show are numbered as in the catalogue
    test_conformance.py   runs each script on both servers, in each era that it has, and compares

A script is an async function on a `Stage`. It knows neither which server it talks to, nor versions. What it awaits is
written into the transcript; the two transcripts must be equal. A parked request is awaited when something else has
made its answer due: nothing ever sleeps, and what needs time to pass is watched with DescribeGroups (`Stage.until`).

Member ids become names, in a transcript, as do group ids and topic ids. Where Kafka's choice is free (the next leader)
a script gives its members new names by their role (`Stage.rename`). Where Muster deliberately answers otherwise, the
script says so, with the reason, and asserts both answers (`Stage.differs`).
"""
