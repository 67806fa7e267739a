"""Clients that are connected to nothing but Muster.

client_connection.py    One client's socket: an `asyncio.Protocol` around a `Connection`, with the dispatch of its
                        requests.
server.py               The server of a standalone coordinator: one address, at which every request is answered
                        here.
"""
