"""The fleet on one page: `muster fleet report`.

    facts.py       the tables -> the values of the page, by DuckDB
    heat.py        when each group rebalanced: cells, levels, paths (pure)
    teams.py       the cost of each team's groups (pure)
    html.py        the values -> one document
    command.py     implements `muster fleet report`

The template is fleet.html.j2; the style is fleet.css and that of a group's page (`replay/report`).
"""
