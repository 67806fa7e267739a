"""The sidecar: between clients and an unmodified cluster. Group membership is answered here, the rest is relayed.

    serve.py             how a sidecar is put together, started and stopped
    upstream_cluster.py  the cluster upstream is waited for at the start, and asked what has to be known before serving
    group_parts.py       what knows of groups, put together
    forwarding/          several sidecars of one log: requests go to the one that owns the group
    apis/                one file for each family of APIs that is answered or merged here
    groups/              which groups Muster coordinates, and how one is moved to or from the cluster upstream
    relay/               a client's socket and its broker's: frames, order, back-pressure, who the client is
    messages/            what is read of messages, and written otherwise, on their way through

What belongs here: all that knows of a client's connection and of the broker behind it. The rules and the log are
behind `service.Groups`; our own connections to the cluster are in `coordinator/upstream/`.
"""
