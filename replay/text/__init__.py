"""Text for people: nouns and lists, times and durations, and what clients sent made safe to print.

grammar.py     nouns with their number, lists, sizes
times.py       instants and durations, written and parsed
zones.py       time zones: which one is meant, and a result's times in it
printable.py   what clients sent, made safe to show on a terminal
"""
