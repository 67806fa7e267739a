"""`muster replay report`: a group's history as one page to attach to a postmortem.

page.py      The values on the page, and their limits.
lives.py     A group's steps -> the lifetimes of its members, which the lanes show.
lanes.py     Lifetimes -> one lane for each process.
stories.py   Incidents and their rebalances, as the page shows them.
fold.py      A group's items -> the page's values. Pure.
html.py      The page's values -> one HTML document, with report.html.j2.
command.py   `muster replay report`: read, fold, write.
"""
