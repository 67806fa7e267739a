"""The postmortem tool: pure functions from a history to a result, and a skin that prints it.

    sources.py     a log read into histories; the only part that touches a log
    history.py     the value: what happened to one group, in order, and what is missing of it
    clock.py       the wall clock as if it had not jumped
    transitions.py  a history as transitions, with the group before and after each
    rebalances/    history -> rebalances: what started each, how long it took, what moved
    incidents/     what belongs together: rebalances -> incidents
    why.py story.py state.py groups.py   the results of `why`, `history`, `state`, `groups`
    event_texts.py each event type in one line of English
    times.py progress.py   instants and durations as people read them; a progress bar
    rerun/         a recorded history through the rules again, which must give the same events
    fleet/         the history of every group, with Spark
    render/        results as tables, JSON, JSON lines
    report/        a history as one HTML page
    form.py        the forms of an answer
    cli.py         `muster replay ...`: its options
    commands.py    what the commands do: read the log, call one pure function, render the result

Results are frozen structs of plain values: instants are ISO 8601 in UTC with milliseconds (`times.py`), durations are
numbers of ms. Their field names are what `--format json` prints: a released name is never changed, fields are added.
"""
