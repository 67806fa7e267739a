"""The postmortem tool: pure functions from a history to a result, and a skin that prints it.

    archive/       a log's records kept for good, as files
    logs/          a log read, whatever it is kept in; exports written
    history/       the value: what happened to one group, in order, and what is missing of it; as transitions
    rebalances/    history -> rebalances: what started each, how long it took, what moved
    incidents/     what belongs together: rebalances -> incidents
    results/       history -> the results of `why`, `history`, `state`, `groups`, `diff`, `digest`
    rerun/         a recorded history through the rules again, which must give the same events
    verify/        a whole log, checked
    whatif/        a group's rebalances, played with other settings
    render/        results as tables, JSON, JSON lines, Markdown
    html/          the base and the chart of HTML pages
    report/        a history as one HTML page
    fleet/         the history of every group, with Spark
    commands/      what the commands do: read the log, fold it, render the result
    cli.py comparing_cli.py   `muster replay ...`: its options
    text/          text for people: nouns, lists, times, what clients sent
    form.py        the forms of an answer
    progress.py    a progress bar
    garbage.py     the garbage collector while a history is folded
    packed.py      what is kept for long, in little room

Histories are streamed: a fold is fed the items of a group one by one (`feed`), and keeps what its result needs.
Results are frozen structs of plain values: instants are ISO 8601 in UTC with milliseconds (`text/times.py`), durations
are numbers of ms. `--format json` prints their field names: a released name is never changed, fields are added.
"""
