"""The fleet on one page: `muster fleet report`.

    facts.py       the tables -> the values of the page, by DuckDB
    heat.py        when each group rebalanced: cells, levels, paths (pure)
    teams.py       what each team's groups cost (pure)
    html.py        the values -> one document
    command.py     `muster fleet report`

fleet.html.j2 is its template; its style is that of a group's page (`replay/report`) and fleet.css.
"""
