"""The postmortem tool: pure functions from a history to a result, and a skin that prints it.

    sources.py     a log read into histories; the only part that touches a log
    history.py     the value: what happened to one group, in order, and what is missing of it
    timeline.py    history -> rebalances; the fold (rebalance.py: its values, phases.py and moves.py: its parts)
    quiet.py       what started no rebalance (incidents.py, standbys.py), and what had been planned (planned.py)
    wording.py     every English phrase about members and causes
    why.py story.py state.py groups.py   the results of `why`, `history`, `state`, `groups`
    rerun.py       a recorded history through the rules again, which must give the same events
                   (inputs.py, leavers.py, membership_inputs.py: the commands behind the events;
                   situation.py, claims.py: what is known, and what has to be assumed)
    render/        results as tables, JSON, JSON lines
    cli.py         parse, call one pure function, render, choose the exit code

Results are frozen structs of plain values: instants are ISO 8601 in UTC with milliseconds (`times.py`), durations are
numbers of ms. Their field names are what `--format json` prints: a released name is never changed, fields are added.
"""
