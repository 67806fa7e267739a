"""Clients that are connected to nothing but Muster.

client_connection.py    One client's socket, where every request is answered here.
server.py               The server of a standalone coordinator: one address, at which every request is answered
                        here.
"""
