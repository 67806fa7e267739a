"""The report of a drill.

result.py   the values: what programs read, and what is printed
making.py   everything that was measured -> the values; pure
phases.py   the phases of a takeover; pure
table.py    the values as tables
lanes.py    the lanes of the page's timeline: who owned what, who waited; pure
moments.py  what is told of the timeline: faults, phases, the longest waits, rebalances; pure
html.py     all of it -> one HTML page, by drill.html.j2 and drill.css, on the parts of replay's report
"""
