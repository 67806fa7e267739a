"""The postmortem tool: pure functions from a history to a result, and a thin layer that prints it.

    archive/       a permanent copy of a log's records, as files
    logs/          reads logs, however they are stored; writes exports
    history/       the history of one group as a value: events in order, what is missing, and the transitions
    rebalances/    history -> rebalances: what triggered each, how long it took, what moved
    incidents/     groups related rebalances into incidents
    results/       history -> the results of `why`, `history`, `state`, `groups`, `diff`, `digest`
    rerun/         runs a recorded history through the rules again, which must give the same events
    verify/        checks a whole log
    whatif/        replays a group's rebalances with other settings
    render/        results as tables, JSON, JSON lines, Markdown
    html/          the base template and the chart of HTML pages
    report/        a group's history as one HTML page
    fleet/         the histories of all groups, with Spark
    commands/      implements the commands: read the log, fold it, render the result
    cli.py comparing_cli.py   the options of `muster replay ...`
    text/          text for people: nouns, lists, times, what clients sent
    form.py        output formats
    progress.py    a progress bar
    garbage.py     tunes the garbage collector for folds
    packed.py      compressed values

Histories are streamed: a fold is fed the items of a group one by one (`feed`), and keeps what its result needs. Results
are frozen structs of plain values: instants are ISO 8601 in UTC with milliseconds (`text/times.py`), durations are
numbers of ms. `--format json` prints their field names: a released name never changes, and fields are only added.
"""
