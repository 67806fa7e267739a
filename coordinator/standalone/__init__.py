"""The standalone server, where clients are connected to Muster alone.

client_connection.py    A client's connection, all of whose requests are answered here.
server.py               The server of a standalone coordinator: one address, where every request is answered here.
"""
