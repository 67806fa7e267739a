"""The sidecar: a proxy in front of an unmodified cluster that answers group membership itself and relays the rest.

    serve.py             assembles, starts and stops a sidecar
    upstream_cluster.py  waits for the upstream cluster at startup, and reads what serving needs to know
    group_parts.py       creates the parts that deal with groups, and connects them
    forwarding/          several sidecars on one log: forwards requests to the process that owns the group
    apis/                one file for each family of APIs that is handled or merged here
    groups/              which groups Muster coordinates, and how one moves to or from the upstream cluster
    relay/               a client's socket and its broker's: frames, order, back-pressure, the client's principal
    messages/            which parts of passing messages are read or rewritten

The rules and the log are behind `service.Groups`; Muster's own connections to the cluster are in
`coordinator/upstream/`.
"""
