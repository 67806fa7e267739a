"""The standalone server, where clients are connected to Muster alone.

client_connection.py    A client's connection, all of whose requests are answered here.
partition_sharing.py    The assembly of a process that shares the partitions of its log with others.
server.py               The server of a standalone coordinator: one address, where every request is answered here.
"""
