"""Muster: a Kafka consumer-group coordinator that never forgets why a group rebalanced.

The packages are links to the folders at the top of the repository; `cli.py` is the command.
"""
