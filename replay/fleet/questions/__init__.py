"""The usual questions to the tables: `muster fleet top`, `causes`, `storms`, `incidents`, `group`.

commands.py    what each of them does
queries.py     the questions, by DuckDB
show.py        answers as tables, JSON, Markdown
"""
