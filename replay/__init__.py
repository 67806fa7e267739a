"""The postmortem tool: pure functions from a history to a result, and a skin that prints it.

    sources.py     a log read: the records of one group or of all; the only part that touches a log
    archives.py exports.py   files that a log was exported to, read as logs; and writing them
    pseudonyms.py  a log without names
    history.py     the value: what happened to one group, in order, and what is missing of it
    clock.py       the wall clock as if it had not jumped
    skim.py        a history passed over undecoded, and the checkpoints from which it can be told
    window.py      from when and until when a history is told
    edges.py       which incidents are in a window, where the clock jumped, too
    transitions.py  a history as transitions, with the group before and after each
    rebalances/    history -> rebalances: what started each, how long it took, what moved
    incidents/     what belongs together: rebalances -> incidents
    why.py story.py state.py groups.py diff.py   the results of `why`, `history`, `state`, `groups`, `diff`
    verify/        a whole log, checked
    whatif/        a group's rebalances, played with other settings
    digest.py      what mattered over all groups, and storms over several of them
    group_tail.py  the last records of a group, which say what its last incident was
    event_texts.py each event type in one line of English
    times.py zones.py progress.py   instants and durations as people read them; time zones; a progress bar
    rerun/         a recorded history through the rules again, which must give the same events
    fleet/         the history of every group, with Spark
    render/        results as tables, JSON, JSON lines, Markdown
    report/        a history as one HTML page
    form.py        the forms of an answer
    cli.py comparing_cli.py options.py   `muster replay ...`: its options
    commands.py    what the commands do: read the log, fold it, render the result
    comparing.py   the same for what compares: `diff`, `whatif`, `verify`
    why_command.py   the same for `why`: which incidents are read, and which are shown
    asked.py       views, windows and groups that were asked for, and what to say where there is none
    opening.py     the log of a command, opened; exit codes

Histories are streamed: a fold is fed the items of a group one by one (`feed`), and keeps what its result needs.
Results are frozen structs of plain values: instants are ISO 8601 in UTC with milliseconds (`times.py`), durations are
numbers of ms. Their field names are what `--format json` prints: a released name is never changed, fields are added.
"""
