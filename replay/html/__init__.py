"""The base of HTML pages, and the chart of processes over time, for reports about a group, the fleet, or a drill.

base.html.j2 has the head, parts.html.j2 the macros, page.css the style, chart.js draws the chart.
"""
