"""The standalone server, where clients are connected to Muster alone.

client_connection.py    A client's connection, all of whose requests are answered here.
missing_topics.py       Metrics and log lines for topics that clients ask for and that are not declared.
server.py               The server of a standalone coordinator: one address, where every request is answered here.
"""
