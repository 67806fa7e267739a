"""The common queries over the tables: `muster fleet top`, `causes`, `storms`, `incidents`, `group`.

commands.py    implements the commands
queries.py     the queries, in DuckDB
show.py        prints answers as tables, JSON or Markdown
"""
