"""`muster replay report`: a group's history as one page to attach to a postmortem.

page.py      The values that the page shows, and how many of each.
lives.py     A group's steps -> the lives of its members: what the lanes are made of.
lanes.py     Lives -> a lane for each process.
stories.py   Incidents and their rebalances, as the page tells them.
fold.py      A group's items -> the page's values. Pure.
html.py      The page's values -> one HTML document, by report.html.j2, report.css and report.js beside it.
command.py   `muster replay report`: read, fold, write.
"""
