"""Text for people: nouns and lists, times and durations, and safe printing of client text.

grammar.py     nouns with their number, lists, sizes
times.py       instants and durations, formatted and parsed
zones.py       time zones: finds the one that is meant, and converts a result to it
printable.py   makes text from clients safe to show on a terminal
"""
