"""The sidecar: between clients and an unmodified cluster. Group membership is answered here, the rest is relayed.

    listeners.py        one address for each broker, and one to begin with
    client_side.py      a client's socket, and its broker's: every client connection has one of its own upstream
    conversation.py     what goes back and forth between the two, without sockets: frames, order, how much may wait
    intercept.py        by API key: relay, relay and rewrite the answer, or handle here
    rewriting.py        answers that carry addresses or versions
    membership.py ...   one file for each family of APIs that is handled here
    authorization.py    what the broker lets the client do, asked on the client's own connection
    whose.py            whose group it is

What belongs here: all that knows of a client's connection and of the broker behind it. The rules and the log are
behind `service.Groups`; our own connections to the cluster are in `coordinator/upstream/`.
"""
